// comm/membership-checkpoint.cpp — when shared checkpoints are ordered, and when they are complete.
#include "comm/membership.h"

#include <algorithm>

namespace gt {

void Membership::part_ready(int part, const CheckpointPart & written, uint64_t state_digest) {
    GT_CHECK(order_ && part >= 0 && part < static_cast<int>(order_->parts.size()), "no such part");
    const auto known = states_.find(order_->index);
    if (known != states_.end() && state_digest != 0 && known->second != state_digest) {
        order_->is_broken = true;  // written from a state that is not the majority's
        return;
    }
    order_->parts[static_cast<size_t>(part)] = written;
    order_->digests[part]                    = state_digest;
}

// A part is missing for good, or parts are of different states.
bool Membership::is_order_broken(const Commit & commit) const {
    if (!order_ || order_->is_broken) {
        return order_.has_value();
    }
    uint64_t digest = 0;  // 0: that writer didn't say
    for (size_t i = 0; i < order_->parts.size(); ++i) {
        const CheckpointPart & part  = order_->parts[i];
        const auto             ready = order_->digests.find(static_cast<int>(i));
        const CommitHost *     host  = commit.find(part.host);
        if (ready == order_->digests.end()) {
            const bool diverged =
                std::count(commit.diverged.begin(), commit.diverged.end(), part.host) > 0;
            if (diverged || !host || !host->member || host->incarnation != part.incarnation) {
                return true;
            }
        } else if (ready->second != 0) {
            if (digest != 0 && digest != ready->second) {
                return true;
            }
            digest = ready->second;
        }
    }
    return false;
}

void Membership::order_checkpoint(Commit & commit) const {
    const bool is_last = options_.n_steps != 0 && commit.step + 1 >= options_.n_steps;
    const bool is_due =
        options_.checkpoint_every != 0 && commit.index >= last_order_ + options_.checkpoint_every;
    if (commit.messages.empty() || commit.phase == 1 ||
        !(is_last || is_due || is_order_broken(commit))) {
        return;
    }
    for (const CommitMessage & message : commit.messages) {  // who just sent is surely there
        const CommitHost * host = commit.find(message.host);
        if (host->member && host->incarnation == message.incarnation &&
            commit.writers.size() < kMaxParts) {
            commit.writers.push_back(message.host);
        }
    }
}

void Membership::list_checkpoint(Commit & commit) const {
    if (!order_ || order_->digests.size() != order_->parts.size()) {
        return;
    }
    if (is_order_broken(commit)) {
        return;
    }
    uint64_t digest = 0;
    for (const auto & [part, told] : order_->digests) {
        digest = told != 0 ? told : digest;
    }
    commit.complete_at = commit.index;
    commit.complete    = CheckpointList{
           .index        = order_->index,
           .step         = order_->step,
           .state_digest = digest,
           .head         = order_->head,
           .parts        = order_->parts};
}

}  // namespace gt
