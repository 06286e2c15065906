// comm/commit.h — the commit record: what closed a round, the same for every host.
//
// Commits form a chain: each names the digest of the one before. A key is written once, so that a
// round has one commit whoever tries to write it; a later *revision* of it exists only where a
// listed message was lost for everybody, and the commit after it says which revision holds.
// Bytes from outside: parse_commit checks every bound before it allocates.
//
//   body, little-endian; text = u16 length and letters; digest = 32 bytes
//     u64 epoch | u64 step | u8 phase | digest previous | u32 pace_ms | u64 state_index
//     | u64 state_digest | u64 complete_at | text validator
//     u16 n | n hosts:    text name | u64 incarnation | u8 member | u64 since | u64 last_listed | u8 history
//     u16 n | n messages: u16 place in hosts | u64 incarnation | u64 weight | u64 size | digest | text where
//     u16 n | n diverged: u16 place in hosts
//     u16 n | n writers of the parts of a new shared checkpoint: u16 place in hosts
//     u8 has | u64 index | u64 step | u64 state_digest | digest head | u16 n | n parts:
//              text host | u64 incarnation | u64 size | u32 n_pieces | digest
// Read next: membership.h (what decides), commit-log.h (how they are read).
#pragma once

#include "comm/records.h"

namespace gt {

constexpr uint64_t kNone           = ~0ull;  // "no such index or step"
constexpr size_t   kMaxHosts       = 1024;
constexpr size_t   kMaxParts       = 1024;
constexpr uint32_t kMaxRevision    = 8;
constexpr size_t   kMaxCommitBytes = 1 << 20;

// A host that the run has known. It stays listed when it goes: what it sent stays known.
struct CommitHost {
    std::string name;
    uint64_t    incarnation = 0;
    bool        member      = false;  // belongs to the next round
    uint64_t    since       = 0;      // index that took this life in
    uint64_t    last_listed = kNone;  // last index with a message of this host, in any life
    uint8_t     history     = 0;      // bit 0: listed in this round, bit 1: in the one before, ...
};

struct CommitMessage {
    std::string host;
    uint64_t    incarnation = 0;
    uint64_t    weight      = 1;
    uint64_t    size        = 0;  // of the whole value
    Key32       digest{};         // of the whole value
    std::string where;            // empty: in the store; else who holds a copy besides the sender
};

struct CheckpointPart {
    std::string host;  // who wrote it
    uint64_t    incarnation = 0;
    uint64_t    size        = 0;
    uint32_t    n_pieces    = 0;
    Key32       digest{};  // of the whole part, not sealed
};

// A shared checkpoint, all parts of which are in the store: the state after `index`.
struct CheckpointList {
    uint64_t                    index        = 0;
    uint64_t                    step         = 0;
    uint64_t                    state_digest = 0;
    Key32                       head{};  // digest of the commit of that index
    std::vector<CheckpointPart> parts;
};

struct Commit {
    uint64_t    index    = 0;
    uint32_t    revision = 0;
    std::string writer;
    uint64_t    epoch = 0;
    uint64_t    step  = kNone;  // of the messages; with none, that of the commit before
    uint8_t     phase = 0;
    Key32       previous{};
    uint32_t    pace_ms      = 0;      // how long rounds take: what a host's work should fit in
    uint64_t    state_index  = 0;      // the majority's shared state after this index
    uint64_t    state_digest = 0;      // has this digest; 0: nobody said
    uint64_t    complete_at  = kNone;  // index of the last commit that has `complete`
    std::string validator;

    std::vector<CommitHost>       hosts;     // in the order of their first coming
    std::vector<CommitMessage>    messages;  // in the order of hosts
    std::vector<std::string>      diverged;  // hosts whose state is not the majority's
    std::vector<std::string>      writers;   // of a new shared checkpoint of this index
    std::optional<CheckpointList> complete;

    const CommitHost *    find(const std::string & host) const;
    const CommitMessage * message_of(const std::string & host) const;
};

Bytes encode_commit(const RunKeys & keys, const Commit & commit);

// Nothing if it isn't a genuine commit of that index and revision; `why` (may be null) says so.
[[nodiscard]] std::optional<Commit> parse_commit(
    const RunKeys &          keys,
    uint64_t                 index,
    uint32_t                 revision,
    std::span<const uint8_t> value,
    std::string *            why = nullptr
);

}  // namespace gt
