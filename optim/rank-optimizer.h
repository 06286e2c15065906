// optim/rank-optimizer.h — the part of prepare common to all optimizers: the norm of the host's gradient,
// clipping, and joining the parts of the host's ranks into one message.
#pragma once

#include "ggml-train/local-group.h"
#include "optim/rules/rule.h"
#include "optim/wire/inbox.h"

namespace gt {

// Everything an optimizer is made of. layout and rule refer to the units.
struct OptimizerParts {
    LocalGroup *                ranks = nullptr;  // null: this rank is alone
    std::unique_ptr<Units>      units;
    std::unique_ptr<Layout>     layout;                // null: hosts train alone
    float                       clip_messages = 0.0f;  // see Inbox
    std::unique_ptr<UpdateRule> rule;
};

class RankOptimizer : public Optimizer {
public:
    Prepared prepare(uint64_t step, float lr, const Clip & clip) final;

protected:
    // Collective, if there are other ranks.
    explicit RankOptimizer(OptimizerParts parts);

    // Folds the gradients, times grad_scale, into this rank's state. Returns this rank's part of the
    // message; empty if no round is due.
    virtual Bytes pack(uint64_t step, float lr, float grad_scale) = 0;

    // Norm of the host's gradient. Collective.
    virtual double norm();

    OptimizerParts parts_;

private:
    Bytes join(Bytes part);

    bool is_cut_ = false;  // ranks own different rows
};

// Norm of the gradient over the units of all ranks (null: of this one). The order of the sum depends on
// the model alone, so every number of ranks and threads gives the same bits.
double grad_norm(const Units & units, LocalGroup * ranks);

}  // namespace gt
