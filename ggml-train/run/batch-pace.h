// ggml-train/run/batch-pace.h — how much of its batch a host computes in a step, so that a slow host meets
// the deadline of the rounds.
//
// A host computes its whole batch unless that takes longer than the deadline; then it computes as many
// micro-batches as fit. Its message is weighted by the number of samples computed. Which samples these
// are stays a function of (seed, step, host, i); their number is in metrics.jsonl.
//
// The deadline follows the time that a whole batch takes the others, also where they compute less of it
// (comm/sequencer/membership.h): after a load on all of them no host keeps the others small.
#pragma once

#include "ggml-train/base/round-deadline.h"

#include <algorithm>
#include <cstdint>

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

    // A round has closed. seconds: a whole batch took the hosts this long in the rounds before it; 0:
    // unknown.
    void others(double seconds) { others_s_ = seconds; }

    int64_t n_micro() const {
        const double whole = each_s_ * static_cast<double>(n_all_);
        if (others_s_ <= 0.0 || whole <= kMinDeadlineMs / 1000.0 ||
            whole <= kDeadlineFactor * others_s_) {
            return n_all_;
        }
        return std::clamp<int64_t>(static_cast<int64_t>(0.9 * others_s_ / each_s_), 1, n_all_);
    }

private:
    int64_t n_all_;
    double  each_s_ = 0.0, others_s_ = 0.0;
};

}  // namespace gt
