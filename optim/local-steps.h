// optim/local-steps.h — hosts move their own weights by the rule, and meet every so often: DiLoCo
// (arXiv 2311.08105), SparseLoCo (arXiv 2508.15706), or never (none).
//
// A round sends the change since the last one, added to what earlier rounds left unsent, and moves the
// anchor, which all hosts share, by an outer step; weights then begin again from the anchor.
//
// A host that misses a round keeps its change in its weights, where its next steps see it, less the mean
// of those who were in: that stood for all, so that only the difference is owed. (If all of it went out
// on top of the next change, rounds would move the anchor twice as far as hosts did, and the outer
// momentum would swing higher and higher: see arXiv 2401.09135.)
#pragma once

#include "optim/decoupled.h"

namespace gt {

struct LocalStepsOptions {
    float residual_decay = 1.0f;  // of what was not sent
    float outer_lr       = 0.7f;
    float outer_momentum = 0.9f;   // Nesterov; 0: none
    bool  sign           = false;  // of the gradient
    bool  overlap        = false;  // local steps go on while a round travels
};

std::unique_ptr<Optimizer>
make_local_steps(OptimizerParts parts, const LocalStepsOptions & options);

}  // namespace gt
