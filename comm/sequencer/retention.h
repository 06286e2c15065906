// comm/sequencer/retention.h — garbage-collects rounds older than the last complete checkpoint.
//
// Joining needs no rounds older than the last complete shared checkpoint. The one before is kept for
// hosts that are loading it, for a quarter of the interval between the two. A floor record is written before anything is removed; a round's
// messages are removed before its commit, so after a crash the lowest commit shows where to continue.
// A store that is nearly full keeps one checkpoint, and messages of the last rounds only: members go
// on, and who joins waits for the next checkpoint.
#pragma once

#include "comm/sequencer/commit-log.h"

namespace gt {

class Retention {
public:
    Retention(Store & store, const RunKeys & keys);

    // Finds, with one listing, the work that a previous sequencer left.
    void start(uint64_t floor);

    // Writes the floor record: older rounds may be removed, or are lost.
    void raise(uint64_t floor);

    // Called with every commit, in order.
    void commit(const Commit & commit);

    // Removes a few rounds, if there are any to remove.
    void work();

private:
    void remove_all(const std::string & prefix);
    void remove_round(uint64_t index);
    void drop_slices();

    Store &               store_;
    const RunKeys &       keys_;
    RunPaths              paths_;
    CommitLog             log_;
    uint64_t              floor_         = 0;      // as in the floor record
    uint64_t              done_          = 0;      // all rounds below are removed
    bool                  is_direct_     = false;  // some messages were served by their senders
    uint64_t              last_complete_ = kNone, complete_before_ = kNone;
    uint64_t              ordered_ = kNone;  // the last checkpoint that was ordered
    std::vector<uint64_t> dropped_;          // those before that were never complete
    bool                  is_clean_ = true;  // no slices of these are in the store, but late ones
    uint64_t newest_ = 0, listed_at_ = 0;    // the newest commit, and that of last_complete_
    uint64_t thin_ = 0;                      // no messages below, if the store was nearly full
};

}  // namespace gt
