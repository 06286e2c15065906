// comm/commit-log.h — reads the chain of commits out of a store.
//
// Absent and unreadable are different answers: whoever takes a torn read for "not there yet" might
// write a second commit for a round that has one.
#pragma once

#include "comm/commit.h"
#include "comm/store.h"

#include <deque>

namespace gt {

struct ChainEntry {
    Commit commit;
    Key32  digest{};  // of the whole record: what the next commit names as `previous`
};

class CommitLog {
public:
    CommitLog(Store & store, const RunKeys & keys) : store_(store), keys_(keys), paths_(keys.run) {}

    // Nothing if it is not there within `wait`. Throws StoreError if what is there can't be read.
    [[nodiscard]] std::optional<ChainEntry>
    read(uint64_t index, uint32_t revision = 0, std::chrono::milliseconds wait = {}) const;

    // The revision of `index` that has this digest.
    [[nodiscard]] std::optional<ChainEntry> find(uint64_t index, const Key32 & digest) const;

    // Everything below may be removed. Lists: for joining and for long waits only.
    [[nodiscard]] uint64_t floor() const;

    // From the floor to the newest, each naming the one before; empty: the run has not begun.
    [[nodiscard]] std::deque<ChainEntry> load() const;

    // Appends what came since; false if the chain no longer fits its last entry.
    [[nodiscard]] bool extend(std::deque<ChainEntry> & chain) const;

private:
    Store &         store_;
    const RunKeys & keys_;
    RunPaths        paths_;
};

}  // namespace gt
