// comm/sequencer/checkpoint-order.cpp — see checkpoint-order.h.
#include "comm/sequencer/checkpoint-order.h"

#include <algorithm>

namespace gt {

CheckpointOrder::CheckpointOrder(const Commit & head, const Key32 & digest) {
    list_.index = head.index;
    list_.step  = head.step;
    list_.head  = digest;
    for (const std::string & writer : head.writers) {
        list_.slices.push_back({.host = writer, .incarnation = head.find(writer)->incarnation});
    }
}

bool CheckpointOrder::is_waiting_for(const std::string & host) const {
    for (size_t i = 0; i < list_.slices.size(); ++i) {
        if (list_.slices[i].host == host && !is_ready(i)) {
            return true;
        }
    }
    return false;
}

void CheckpointOrder::set_ready(
    size_t slice, const CheckpointSlice & written, uint64_t state_digest
) {
    GT_CHECK(slice < list_.slices.size(), "no such slice");
    list_.slices[slice] = written;
    digests_[slice]     = state_digest;
}

bool CheckpointOrder::is_broken(const Commit & commit, uint64_t majority) const {
    for (const auto & [slice, digest] : digests_) {
        if (digest != (majority != 0 ? majority : digests_.begin()->second)) {
            return true;
        }
    }
    for (size_t i = 0; i < list_.slices.size(); ++i) {
        const CheckpointSlice & slice = list_.slices[i];
        const CommitHost *      host  = commit.find(slice.host);
        const bool              has_diverged =
            std::count(commit.diverged.begin(), commit.diverged.end(), slice.host) > 0;
        if (!is_ready(i) &&
            (has_diverged || !host || !host->member || host->incarnation != slice.incarnation)) {
            return true;
        }
    }
    return false;
}

CheckpointList CheckpointOrder::list() const {
    CheckpointList out = list_;
    out.state_digest   = digests_.begin()->second;
    return out;
}

}  // namespace gt
