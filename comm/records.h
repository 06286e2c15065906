// comm/records.h — the keys of a run in its store, and the small records under them.
//
// Everything is a frame (frame.h). Who may write is proven in two ways: messages and checkpoint
// pieces are sealed (only hosts can), all other records carry a tag made with the commit key (hosts
// and the hub can). What a record is about is never taken from it: the reader computes it from the
// key it asked for, and another record under that key does not pass.
// Rounds are numbered densely here: the *index*. Index 0 is the run's beginning; the trainer's own
// number, the *step*, travels in the head of a message. protocol.md is the whole story.
#pragma once

#include "comm/frame.h"
#include "comm/seal.h"

namespace gt {

class WireReader;

enum class Kind : uint8_t {
    message  = 1,
    commit   = 2,
    presence = 3,  // hello or leave
    epoch    = 4,
    piece    = 5,  // of a part of the shared checkpoint
    ready    = 6,  // a part of the shared checkpoint is there
    lost     = 7,  // a listed message can't be fetched
    floor    = 8,  // what is older may be gone
    shard    = 9,  // of a dense exchange
    settings = 10,
    model    = 11,
    held     = 12,  // a second member holds a message that its sender serves
};

// Who sent a message, for which round.
struct MessageId {
    uint64_t    index = 0;
    std::string host;
    uint64_t    incarnation = 0;
};

// Names of keys. All begin with the run's number.
struct RunPaths {
    explicit RunPaths(uint64_t run);

    std::string message(uint64_t index, const std::string & host, uint64_t incarnation) const;
    std::string messages(uint64_t index) const;  // the prefix of one round's
    std::string held(const MessageId & id) const;
    std::string helds(uint64_t index) const;
    std::string commit(uint64_t index, uint32_t revision) const;
    std::string presences() const;  // the prefix of all hellos and leaves
    std::string presences(const std::string & host) const;
    std::string hello(const std::string & host, uint64_t incarnation) const;
    std::string leave(const std::string & host, uint64_t incarnation) const;
    std::string epochs() const;
    std::string epoch(uint64_t epoch) const;
    std::string pieces(uint64_t index, int part, const std::string & host, uint64_t life) const;
    std::string piece(const std::string & pieces, int piece) const;
    std::string ready(uint64_t index, int part, const std::string & host, uint64_t life) const;
    std::string lost(uint64_t index, uint32_t revision, const std::string & host) const;
    std::string floors() const;
    std::string floor(uint64_t index) const;
    std::string shard(uint64_t index, const std::string & host, uint64_t life, int shard) const;
    std::string shards(uint64_t index) const;
    std::string settings() const;

    std::string root;  // "r0123456789abcdef/"
};

// Which host and life a presence key tells of. Nothing if it is not such a key.
struct Presence {
    std::string host;
    uint64_t    incarnation = 0;
    bool        leaving     = false;
};
std::optional<Presence> parse_presence(const RunPaths & paths, const std::string & key);

// The number at the end of a key, as in floor(); nothing if there is none.
std::optional<uint64_t> parse_tail(const std::string & prefix, const std::string & key);

// What a record is about; the tag covers it.
struct RecordHead {
    Kind        kind  = Kind::presence;
    uint64_t    index = 0;
    std::string host;
    uint64_t    incarnation = 0;
};

Bytes make_record(const RunKeys & keys, const RecordHead & head, std::span<const uint8_t> body);

// The body, if the record is whole, genuine and about `expected`. With an empty expected.host any
// author is accepted and written to `author`.
[[nodiscard]] std::optional<Bytes> parse_record(
    const RunKeys &          keys,
    const RecordHead &       expected,
    std::span<const uint8_t> value,
    std::string *            author = nullptr
);

// The part of a message that the sequencer reads: in clear, and once more under the seal.
struct MessageHead {
    uint64_t step   = 0;  // the trainer's number of the round
    uint8_t  phase  = 0;  // 0: applied at once; 1, 2: input and output of a dense exchange
    uint64_t weight = 1;
    Key32    base{};            // digest of the commit that the sender stands on
    uint64_t state_index  = 0;  // shared state after this index has
    uint64_t state_digest = 0;  // this digest; 0: not said
    uint32_t n_body_bytes = 0;
    float    loss = 0, tokens_s = 0, waited_s = 0;  // metrics of the step, for the status page
    uint64_t up_bytes = 0, down_bytes = 0;          // since the start
};
constexpr size_t kMessageHeadBytes = 101;

Bytes make_message(
    const RunKeys &          keys,
    const MessageId &        id,
    const MessageHead &      head,
    std::span<const uint8_t> body
);

// The head alone, within its bounds; for who has more to read behind it.
[[nodiscard]] std::optional<MessageHead> read_message_head(WireReader & in);

// What can be known without the seal key.
[[nodiscard]] std::optional<MessageHead>
parse_message_head(uint64_t run, const MessageId & id, std::span<const uint8_t> value);

// Opens it. Nothing if it isn't genuine: the same answer on every host for the same bytes.
[[nodiscard]] std::optional<Bytes> open_message(
    const RunKeys &          keys,
    const MessageId &        id,
    std::span<const uint8_t> value,
    MessageHead *            head = nullptr
);

}  // namespace gt
