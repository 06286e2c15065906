// ggml-train/pace.h — how much of its batch a host does in a step, so that a slow one keeps up.
//
// All of it, unless that takes clearly longer than the rounds of the others leave time for: then as
// many micro-batches as fit. Its message weighs as many samples as were done. Which samples these
// are stays a function of (seed, step, host, i); how many is told in metrics.jsonl.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gt {

class Pace {
public:
    // n_all: micro-batches of a whole batch.
    explicit Pace(int64_t n_all) : n_all_(n_all) {}

    // What n micro-batches took.
    void measured(int64_t n, double seconds) {
        const double each = seconds / static_cast<double>(n);
        each_s_           = each_s_ > 0.0 ? 0.5 * (each_s_ + each) : each;
    }

    // How long a step of the others takes; 0: not known.
    void others(double seconds) { others_s_ = seconds; }

    int64_t n_micro() const {
        const double whole = each_s_ * static_cast<double>(n_all_);
        if (others_s_ <= 0.0 || whole <= kLeastSeconds || whole <= kSlow * others_s_) {
            return n_all_;
        }
        return std::clamp<int64_t>(static_cast<int64_t>(0.9 * others_s_ / each_s_), 1, n_all_);
    }

private:
    static constexpr double kSlow = 1.5;  // rounds wait for so long, as comm/membership.h says
    static constexpr double kLeastSeconds = 0.5;  // and never for less than that

    int64_t n_all_;
    double  each_s_ = 0.0, others_s_ = 0.0;
};

}  // namespace gt
