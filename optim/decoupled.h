// optim/decoupled.h — optimizer with decoupled momentum: DeMo, FlexDeMo, DeToNATION.
//
// Gradients accumulate in a momentum that stays on the host. Each round its fast-moving part is
// extracted and sent; the mean of all hosts' parts updates the weights, equally on every host.
// arXiv 2411.19870, 2502.06728. Read next: decoupled.cpp, then repl-demo.cpp (the extraction).
#pragma once

#include "optim/rank-optimizer.h"

#include <functional>

namespace gt {

struct DecoupledOptions {
    float decay                = 0.999f;  // of the momentum
    bool  fold_by_lr           = true;    // accumulate lr·g; false: g, without decay (full)
    bool  sign                 = true;    // the update is the sign of the mean
    bool  subtract_missed_mean = false;   // after a missed round, subtract the committed mean from
                                          // the momentum (all but demo)
};

// Q = mean(q of every host);  u = restore(Q);  u = sign(u), if asked;  p = rule(p, u)
// use: called with each unit's mean.
void apply_mean(
    const OptimizerParts &                                             parts,
    const Round &                                                      round,
    bool                                                               sign,
    const std::function<void(const Unit & unit, const float * mean)> & use
);

std::unique_ptr<Optimizer> make_decoupled(OptimizerParts parts, const DecoupledOptions & options);

}  // namespace gt
