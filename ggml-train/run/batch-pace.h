// ggml-train/run/batch-pace.h — how much of its batch a host computes in a step, so that a slow host meets
// the deadline of the rounds.
//
// A host computes its whole batch unless that takes longer than the deadline; then it computes as many
// micro-batches as fit. Its message is weighted by the number of samples computed. Which samples these
// are stays a function of (seed, step, host, i); their number is in metrics.jsonl.
//
// The deadline follows the steps of the others, which may be reduced, too: after a load on all of them
// every host would keep the others small. So a host compares its whole batch with theirs: the time of
// their steps divided by the share of the batch that they computed in it.
#pragma once

#include "ggml-train/base/round-deadline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace gt {

class Pace {
public:
    // n_all: micro-batches of a whole batch.
    explicit Pace(int64_t n_all) : n_all_(n_all) {}

    // Computing n micro-batches took this long.
    void measured(int64_t n, double seconds) {
        const double each = seconds / static_cast<double>(n);
        each_s_           = each_s_ > 0.0 ? 0.5 * (each_s_ + each) : each;
    }

    // A round has closed. seconds: a step of the hosts took this long in the rounds before it; 0:
    // unknown. shares: the fraction of its batch that each host computed for this round.
    void others(double seconds, std::vector<double> shares) {
        others_s_ = seconds;
        typical_  = rounds_.empty() ? 1.0 : middle({rounds_.begin(), rounds_.end()}, false);
        most_     = *std::max_element(shares.begin(), shares.end());
        rounds_.push_back(std::clamp(middle(std::move(shares), true), 1e-3, 1.0));
        if (rounds_.size() > kRounds) {
            rounds_.pop_front();
        }
    }

    int64_t n_micro() const {
        const double whole = each_s_ * static_cast<double>(n_all_);
        if (others_s_ <= 0.0 || whole <= kMinDeadlineMs / 1000.0 ||
            whole <= kDeadlineFactor * others_s_) {
            return n_all_;
        }
        const bool keeps_up = whole <= kDeadlineFactor * others_s_ / typical_;
        if (keeps_up && most_ < 1.0) {
            return n_all_;  // nobody computes a whole batch: the deadline will follow us
        }
        const double fits = 0.9 * others_s_ * (keeps_up ? kDeadlineFactor : 1.0);
        return std::clamp<int64_t>(static_cast<int64_t>(fits / each_s_), 1, n_all_);
    }

private:
    static constexpr size_t kRounds = 8;  // as in comm/sequencer/membership.cpp

    static double middle(std::vector<double> values, bool upper) {
        std::sort(values.begin(), values.end());
        return values[(values.size() - (upper ? 0 : 1)) / 2];
    }

    int64_t            n_all_;
    double             each_s_ = 0.0, others_s_ = 0.0;
    double             typical_ = 1.0, most_ = 1.0;  // shares: of a typical host, the largest one
    std::deque<double> rounds_;  // typical shares of the rounds that others_s_ is the median of
};

}  // namespace gt
