// ggml-train/run/schedule.h — learning rate as a pure function of the step. The same bits on every host:
// no libm, no contraction of operations (fixed-math.h).
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

struct Schedule {
    std::string kind      = "cosine";  // constant, linear, cosine, wsd
    float       lr        = 1e-3f;     // peak
    float       min_ratio = 0.1f;      // final rate / peak rate
    int64_t     warmup    = -1;        // steps of linear increase; -1: see warmup_steps()
    int64_t     steps     = 1000;      // total; later steps keep the final rate
    float       decay     = 0.2f;      // wsd: fraction of the steps with linear decay

    template <class Visit>
    void visit(Visit && visit) {
        visit(
            "lr", lr, "peak learning rate; 0: by model size, lower for trained models and adapters",
            {}, 0
        );
        visit(
            "schedule", kind, "learning rate after the warmup",
            {"cosine", "linear", "wsd", "constant"}
        );
        visit(
            "warmup", warmup, "steps of linear warmup; -1: 2 % of all, but 10 to 2000 steps", {}, -1
        );
        visit(
            "min-lr-ratio,min-lr", min_ratio, "final learning rate as a fraction of --lr", {}, 0, 1
        );
        visit(
            "wsd-decay,decay", decay, "wsd: fraction of the steps in which the rate decays", {}, 0,
            1
        );
    }

    // Throws an Error if a value is invalid.
    void check() const;

    // Of a run of fewer than 20 steps, half.
    int64_t warmup_steps() const;

    // The rate of a step; the first step is 0. REQUIRES: check passed.
    float at(uint64_t step) const;
};

}  // namespace gt
