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

void CheckpointOrder::set_ready(
    size_t slice, const CheckpointSlice & written, uint64_t state_digest, uint64_t majority
) {
    GT_CHECK(slice < list_.slices.size(), "no such slice");
    if (majority != 0 && state_digest != 0 && majority != state_digest) {
        is_spoiled_ = true;
        return;
    }
    list_.slices[slice] = written;
    digests_[slice]     = state_digest;
}

bool CheckpointOrder::is_broken(const Commit & commit) const {
    uint64_t common = 0;
    for (size_t i = 0; i < list_.slices.size() && !is_spoiled_; ++i) {
        const CheckpointSlice & slice = list_.slices[i];
        const auto              ready = digests_.find(i);
        const CommitHost *      host  = commit.find(slice.host);
        if (ready == digests_.end()) {
            const bool has_diverged =
                std::count(commit.diverged.begin(), commit.diverged.end(), slice.host) > 0;
            if (has_diverged || !host || !host->member || host->incarnation != slice.incarnation) {
                return true;
            }
        } else if (ready->second != 0) {
            if (common != 0 && common != ready->second) {
                return true;
            }
            common = ready->second;
        }
    }
    return is_spoiled_;
}

CheckpointList CheckpointOrder::list() const {
    CheckpointList out = list_;
    for (const auto & [slice, digest] : digests_) {
        out.state_digest = digest != 0 ? digest : out.state_digest;
    }
    return out;
}

}  // namespace gt
