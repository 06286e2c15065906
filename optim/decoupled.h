// optim/decoupled.h — Optimizer = one replicator + one rule: DeMo, FlexDeMo, DeToNATION.
//
// Every gradient folds into a momentum that stays at home; each round its fast-moving part is sent,
// and the mean of what all hosts sent moves the weights, the same on every host. arXiv 2411.19870,
// 2502.06728. Read next: decoupled.cpp, then repl-demo.cpp (what is sent).
#pragma once

#include "optim/messenger.h"
#include "optim/rule.h"

namespace gt {

struct DecoupledOptions {
    float decay      = 0.999f;  // of the momentum
    bool  fold_by_lr = true;    // the momentum takes in lr * g; false: g, and nothing decays (full)
    bool  sign       = true;    // the sign of the mean is the update
    bool  made_up = false;  // a round's mean stands for a message that it left out, too (not demo)
};

// Owns the units, the messenger and the rule, which refer to them.
struct OptimizerParts {
    std::unique_ptr<Units>     units;
    std::unique_ptr<Messenger> messenger;  // null: hosts train alone
    std::unique_ptr<Rule>      rule;
};

std::unique_ptr<Optimizer> make_decoupled(OptimizerParts parts, const DecoupledOptions & options);

}  // namespace gt
