// ggml-train/schedule.h — learning rate as a pure function of the step. The same bits on every host:
// no libm, no contraction of operations (fixed-math.h).
#pragma once

#include "ggml-train/base.h"

namespace gt {

struct Schedule {
    std::string kind      = "cosine";  // constant, linear, cosine, wsd
    float       lr        = 1e-3f;     // at its highest
    float       min_ratio = 0.1f;      // the last rate, as a share of the highest
    int64_t     warmup    = -1;        // steps of linear rise; -1: a fiftieth of all, 2000 at most
    int64_t     steps     = 1000;      // all of them; afterwards the rate stays at its last
    float       decay     = 0.2f;      // wsd: share of the steps that fall (linearly)

    template <class Visit>
    void visit(Visit && visit) {
        visit("lr", lr, "highest learning rate");
        visit(
            "schedule", kind, "what the rate does after the rise",
            {"cosine", "linear", "wsd", "constant"}
        );
        visit("warmup", warmup, "steps of linear rise; -1: a fiftieth of all");
        visit("min-lr", min_ratio, "last rate, as a share of the highest");
        visit("decay", decay, "wsd: share of the steps that fall");
    }

    // Throws an Error if the numbers make no sense.
    void check() const;

    int64_t warmup_steps() const;

    // Rate of a step, counted from 0. REQUIRES: check passed.
    float at(uint64_t step) const;
};

}  // namespace gt
