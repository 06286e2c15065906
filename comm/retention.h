// comm/retention.h — removes what no host needs any more: the sequencer's broom.
//
// What lies behind the last complete shared checkpoint is not needed to join. One checkpoint more is
// kept, so that a host that is just loading the older one finds its rounds. Before anything is
// removed a floor record says so; messages go before their commit, so that after a crash the lowest
// commit shows how far the work had come.
#pragma once

#include "comm/commit-log.h"

namespace gt {

class Retention {
public:
    Retention(Store & store, const RunKeys & keys);

    // Work left by a sequencer before us is found by one listing.
    void start(uint64_t floor);

    // Every commit, in order.
    void commit(const Commit & commit);

    // Removes what belongs to a few rounds, if there is anything to remove.
    void work();

private:
    void remove_all(const std::string & prefix);
    void remove_round(uint64_t index);

    Store &         store_;
    const RunKeys & keys_;
    RunPaths        paths_;
    CommitLog       log_;
    uint64_t        floor_         = 0;      // as recorded
    uint64_t        done_          = 0;      // all below is removed
    bool            is_direct_     = false;  // some messages were served by their senders
    uint64_t        last_complete_ = kNone, complete_before_ = kNone;
};

}  // namespace gt
