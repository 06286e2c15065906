// comm/wire/commit.h — the commit record, which closes a round: the same for every host.
//
// Commits form a chain: each contains the digest of the one before. A commit's key is written once,
// so a round has one commit even with several writers. If the store has lost what the newest commits
// list, the next one undoes them: it follows an older commit, whose digest it has.
// parse_commit reads untrusted bytes: it checks every bound before it allocates.
//
//   body, little-endian; text = u16 length and characters; digest = 32 bytes
//     u64 step | u8 phase | digest previous | u64 n_undone | u32 pace_ms
//     | u32 outputs_pace_ms | u64 state_index | u64 state_digest | u64 complete_at | text validator
//     | u64 n_shard_bytes
//     u16 n | n hosts:    text name | digest public key | u64 incarnation | u8 0, 1: member, 2: removed | u64 since | u64 last_listed | u8 history
//     u16 n | n messages: u16 place in hosts | u64 incarnation | u64 weight | u64 size | digest | text where
//     u16 n | n diverged: u16 place in hosts
//     u16 n | n writers of the slices of a new shared checkpoint: u16 place in hosts
//     u8 has | u64 index | u64 step | u64 state_digest | digest head | u16 n | n slices:
//              text host | u64 incarnation | u64 size | u32 n_pieces | digest
// Read next: membership.h (decides the content), commit-log.h (reads the chain).
#pragma once

#include "comm/wire/records.h"

namespace gt {

constexpr uint64_t kNone           = ~0ull;       // "no such index or step"
constexpr uint64_t kMaxSize        = 1ull << 40;  // of a message or slice
constexpr uint32_t kMaxPieces      = 1u << 20;    // of a slice
constexpr size_t   kMaxCommitBytes = 1 << 20;

// A host that has ever joined. It stays listed after it leaves, so last_listed is never forgotten.
struct CommitHost {
    std::string name;
    Key32       key{};  // public: of its first hello
    uint64_t    incarnation = 0;
    bool        member      = false;  // takes part in the next round
    bool        removed     = false;  // by hand, for good
    uint64_t    since       = 0;      // index at which this incarnation became a member
    uint64_t    last_listed = kNone;  // last index with a message of this host, but outputs
    uint8_t     history     = 0;      // bit 0: listed in this round, bit 1: in the one before, ...
};

struct CommitMessage {
    std::string host;
    uint64_t    incarnation = 0;
    uint64_t    weight      = 1;
    uint64_t    size        = 0;  // of the whole value
    Key32       digest{};         // of the whole value
    std::string where;            // empty: in the store; else a host that holds a second copy
};

struct CheckpointSlice {
    std::string host;  // its writer
    uint64_t    incarnation = 0;
    uint64_t    size        = 0;
    uint32_t    n_pieces    = 0;
    Key32       digest{};  // of the whole slice, before sealing
};

// A complete shared checkpoint: the state after `index`, with all slices in the store.
struct CheckpointList {
    uint64_t                     index        = 0;
    uint64_t                     step         = 0;
    uint64_t                     state_digest = 0;
    Key32                        head{};  // digest of the commit of that index
    std::vector<CheckpointSlice> slices;

    uint64_t n_bytes() const;
};

struct Commit {
    uint64_t    index = 0;
    std::string writer;
    uint64_t    step  = kNone;  // of the messages; without messages, the step of the commit before
    Phase       phase = Phase::single;
    Key32       previous{};               // digest of the commit that it follows
    uint64_t    n_undone        = 0;      // commits between that one and this: they do not count
    uint32_t    pace_ms         = 0;      // median time of messages: of updates, or in shares of
    uint32_t    outputs_pace_ms = 0;      // inputs and outputs; 0: unknown
    uint64_t    state_index     = 0;      // the majority's shared state after this index
    uint64_t    state_digest    = 0;      // has this digest; 0: unknown
    uint64_t    complete_at     = kNone;  // index of the last commit that has `complete`
    std::string validator;
    uint64_t    n_shard_bytes = 0;  // of the outputs that its messages list

    std::vector<CommitHost>       hosts;     // in the order of joining
    std::vector<CommitMessage>    messages;  // in the order of hosts
    std::vector<std::string>      diverged;  // hosts whose state differs from the majority's
    std::vector<std::string>      writers;   // of a new shared checkpoint of this index
    std::optional<CheckpointList> complete;

    const CommitHost *    find(const std::string & host) const;
    const CommitMessage * message_of(const std::string & host) const;

    // What a host downloads to apply it.
    uint64_t n_bytes() const;
};

Bytes encode_commit(const RunKeys & keys, const Commit & commit);

// Nothing if `value` is not an authentic commit of that index; `why` (may be null) then says why.
[[nodiscard]] std::optional<Commit> parse_commit(
    const RunKeys &          keys,
    uint64_t                 index,
    std::span<const uint8_t> value,
    std::string *            why = nullptr
);

}  // namespace gt
