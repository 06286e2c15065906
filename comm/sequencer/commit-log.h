// comm/sequencer/commit-log.h — the chain of commits in a store: reads it, and puts back what is lost.
//
// Missing and unreadable are different results: a sequencer that took a truncated read for a missing
// commit might write a second one for the same round.
#pragma once

#include "comm/store/store.h"
#include "comm/wire/commit.h"

#include <deque>

namespace gt {

struct ChainEntry {
    Commit commit;
    Key32  digest{};  // of `value`: the next commit's `previous`
    Bytes  value;     // the record; only its writer can make it
};

// The value of a commit's key is no commit of this run: damaged, or not written by a sequencer.
class BadCommit : public StoreError {
public:
    BadCommit(uint64_t index, const std::string & why) : StoreError(why), index(index) {}
    uint64_t index;
};

// Appends the next commit, in place of those that it undoes. False: it does not fit the last one.
[[nodiscard]] bool append(std::deque<ChainEntry> & chain, ChainEntry next);

class CommitLog {
public:
    CommitLog(Store & store, const RunKeys & keys) : store_(store), keys_(keys), paths_(keys.run) {}

    // Nothing if it is not there within `wait`. Throws BadCommit if it is none, StoreError if another
    // version wrote it.
    [[nodiscard]] std::optional<ChainEntry>
    read(uint64_t index, std::chrono::milliseconds wait = {}) const;

    // Rounds below may be removed. Lists keys: only for joining and long waits.
    [[nodiscard]] uint64_t floor() const;

    // Whether all commits from the floor to `index` are in the store. Lists keys.
    [[nodiscard]] bool has_all_until(uint64_t index) const;

    // The same without waiting; nothing also instead of BadCommit.
    [[nodiscard]] std::optional<ChainEntry> find(uint64_t index) const;

    // Removes a value that is no commit, unless the next commit is there: then the store has damaged one.
    // For sequencers: else one bad value at the next index would end the run.
    [[nodiscard]] bool discard(const BadCommit & bad) const;

    // Whether all members of this commit, but for `except`, have left the run.
    [[nodiscard]] bool have_left(const Commit & commit, const std::string & except = "") const;

    // Puts a commit that the store has lost. False: another one is in its place.
    bool put_back(const ChainEntry & entry) const;

    // Walks from the commit of `index` to the first that leads there, and sets `index` to it. Removes
    // commits behind it that do not belong to its chain. False: it is not in the store.
    [[nodiscard]] bool retain(uint64_t & index) const;

    // The chain from the floor to the newest commit; empty: the run has not begun.
    [[nodiscard]] std::deque<ChainEntry> load() const;

    // Appends newer commits; false if they do not fit the last entry.
    [[nodiscard]] bool extend(std::deque<ChainEntry> & chain) const;

private:
    Store &         store_;
    const RunKeys & keys_;
    RunPaths        paths_;
};

}  // namespace gt
