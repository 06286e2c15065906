// comm/sequencer/checkpoint-order.h — a shared checkpoint that a commit has ordered and hosts are writing.
//
// Each writer puts one slice of the state after that commit, and a ready record. When all slices are
// ready and agree about the state's digest, a later commit lists the checkpoint as complete.
#pragma once

#include "comm/wire/commit.h"

#include <map>

namespace gt {

class CheckpointOrder {
public:
    // REQUIRES: head.writers is not empty. `digest`: of that commit.
    CheckpointOrder(const Commit & head, const Key32 & digest);

    uint64_t                             index() const { return list_.index; }
    const std::vector<CheckpointSlice> & slices() const { return list_.slices; }
    bool is_ready(size_t slice) const { return digests_.contains(slice); }
    bool is_waiting_for(const std::string & host) const;
    bool is_complete() const { return digests_.size() == list_.slices.size(); }

    // A slice is in the store. `state_digest`: of the writer's state.
    void set_ready(size_t slice, const CheckpointSlice & written, uint64_t state_digest);

    // It can't be completed: a writer is gone or has diverged, or slices are of different states, or
    // of another one than the majority's (0: unknown).
    bool is_broken(const Commit & commit, uint64_t majority) const;

    // REQUIRES: is_complete() and not is_broken().
    CheckpointList list() const;

private:
    CheckpointList             list_;
    std::map<size_t, uint64_t> digests_;  // of the writer's state, by slice that is ready
};

}  // namespace gt
