// comm/rounds/chain.h — where a host stands in the chain of commits, and what it has read ahead.
#pragma once

#include "comm/sequencer/commit-log.h"

#include <deque>

namespace gt {

class Chain {
public:
    Chain(Store & store, const RunKeys & keys) : log_(store, keys) {}

    const CommitLog & log() const { return log_; }

    // Starts over behind `index`, whose commit has the digest `head`. `chain` is what the log has.
    void start(uint64_t index, const Key32 & head, std::deque<ChainEntry> chain);

    enum class Read {
        none,      // the next commit is not there yet
        appended,  // it is the last of ahead(), in place of those that it undoes
        forked,    // it does not follow the commit that we have applied
    };
    Read read(Millis wait);

    // The first entry of ahead() has been applied.
    void advance();

    // The store lacks commits that it had: it is lost, or was restored from an older copy.
    [[nodiscard]] bool is_lost() const { return !log_.has_all_until(newest()); }

    // Another commit is in the place of the last one applied.
    [[nodiscard]] bool is_replaced() const {
        const auto there = log_.read(index_);
        return there && there->digest != head_;
    }

    // Puts back the commits that we hold. False: others are in their place.
    bool put_back() const;

    // Of the commits that we hold.
    const Commit * find(uint64_t index) const;
    uint64_t       index() const { return index_; }
    const Key32 &  head() const { return head_; }
    const Commit * head_commit() const;
    Bytes          head_value() const { return last_.empty() ? Bytes() : last_.back().value; }
    const std::deque<ChainEntry> & ahead() const { return ahead_; }
    uint64_t       newest() const { return ahead_.empty() ? index_ : ahead_.back().commit.index; }
    const Commit * newest_commit() const;

private:
    CommitLog              log_;
    uint64_t               index_ = 0;  // of the last commit applied
    Key32                  head_{};     // its digest
    std::deque<ChainEntry> last_;       // the last ones applied; empty: a checkpoint was loaded
    std::deque<ChainEntry> ahead_;      // closed rounds, not applied yet
};

}  // namespace gt
