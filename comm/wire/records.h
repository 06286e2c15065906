// comm/wire/records.h — messages and the small records of a run.
//
// Every value is a frame (frame.h), signed by the machine that made it. Messages, checkpoint pieces and shards
// are sealed: only hosts can write and read them. All other records end in a tag made with the commit key: hosts
// and the hub can write them. Settings and model have a second tag, made with the seal key: hosts accept no
// others, so that a hub can't make them. A reader computes what it expects from the key it asked for (keys.h),
// never from the value, so a record that was copied to another key is rejected. protocol.md has the tables.
#pragma once

#include "comm/wire/frame.h"
#include "comm/wire/keys.h"
#include "comm/wire/seal.h"

#include <vector>

namespace gt {

class WireReader;

enum class Kind : uint8_t {
    message  = 1,
    commit   = 2,
    presence = 3,  // see PresenceKey
    piece    = 5,  // of a slice of the shared checkpoint
    ready    = 6,  // a slice of the shared checkpoint is in the store
    floor    = 8,  // older rounds may be removed
    shard    = 9,  // of an exchange in shares
    settings = 10,
    model    = 11,
    held     = 12,  // a second member holds a message that its sender serves
};

// Identifies a record; the tag covers it.
struct RecordHead {
    Kind        kind  = Kind::presence;
    uint64_t    index = 0;
    std::string host;
    uint64_t    incarnation = 0;
};

inline RecordHead head_of(const PresenceKey & key) {
    return {Kind::presence, static_cast<uint64_t>(key.kind), key.host, key.incarnation};
}

Bytes make_record(const RunKeys & keys, const RecordHead & head, std::span<const uint8_t> body);

// Who made a record.
struct Author {
    std::string host;
    Key32       key{};  // public: of its machine
};

// The body, if the record is complete, authentic and identified by `expected`; an empty host there accepts
// any author.
[[nodiscard]] std::optional<Bytes> parse_record(
    const RunKeys &          keys,
    const RecordHead &       expected,
    std::span<const uint8_t> value,
    Author *                 author = nullptr
);

// A piece of a checkpoint or a shard: sealed for its place, in a frame.
Bytes make_sealed(
    const RunKeys & keys, Kind kind, const SealContext & place, std::span<const uint8_t> text
);
[[nodiscard]] std::optional<Bytes>
open_frame(const RunKeys & keys, const SealContext & place, const std::optional<Bytes> & value);

// Whether the frame may be the value of the key. Nobody but a sequencer writes floors: false for them.
bool belongs_to(const RunPaths & paths, const std::string & key, const Frame & frame);

// What a message carries.
enum class Phase : uint8_t {
    single  = 0,  // an update, applied when its commit is
    inputs  = 1,  // of an exchange in shares: digests of the sender's shards
    outputs = 2,  // of an exchange in shares: digests of the shards that the sender has averaged
};

// The head of a message, which the sequencer reads: in clear, and again inside the sealed text.
struct MessageHead {
    uint64_t step       = 0;
    Phase    phase      = Phase::single;
    uint64_t weight     = 1;    // samples
    uint64_t base_index = 0;    // of the newest commit that the sender has applied
    Key32    base{};            // its digest
    uint64_t state_index  = 0;  // the shared state after this index
    uint64_t state_digest = 0;  // has this digest; 0: unknown
    uint32_t n_body_bytes = 0;
    float    loss = 0, tokens_s = 0, waited_s = 0;  // metrics of the step, for the status page
    uint64_t up_bytes = 0, down_bytes = 0;          // since the start
    uint32_t n_shard_bytes = 0;                     // of the outputs that the body lists
};
constexpr size_t   kMessageHeadBytes = 109;
constexpr uint64_t kMaxWeight        = 1ull << 40;

Bytes make_message(
    const RunKeys &          keys,
    const MessageId &        id,
    const MessageHead &      head,
    std::span<const uint8_t> body
);

// Reads a head and checks its bounds; `in` may continue behind it.
[[nodiscard]] std::optional<MessageHead> read_message_head(WireReader & in);

// A head and the public key of the machine that made the message.
struct SignedHead {
    MessageHead head;
    Key32       signer{};
};

// The head of a message, without the seal key.
[[nodiscard]] std::optional<SignedHead>
parse_message_head(uint64_t run, const MessageId & id, std::span<const uint8_t> value);

// The body of a message. Nothing if it is not authentic: every host gets the same result from the
// same bytes.
[[nodiscard]] std::optional<Bytes> open_message(
    const RunKeys &          keys,
    const MessageId &        id,
    std::span<const uint8_t> value,
    SignedHead *             head = nullptr
);

}  // namespace gt
