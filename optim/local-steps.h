// optim/local-steps.h — each host updates its own weights and exchanges the change every n steps: DiLoCo
// (arXiv 2311.08105), SparseLoCo (arXiv 2508.15706), loco (repl-fragments.cpp), or never (none).
//
// A round sends the change since the last one plus the unsent residual of earlier rounds, and moves the
// anchor, which is equal on all hosts, by an outer step; weights restart from the anchor.
//
// A host that misses a round keeps its change in its weights, minus the mean of the committed changes,
// which was applied for all hosts: only the difference stays pending. (Sending the whole change with the
// next round would move the anchor twice as far as the hosts moved, and the outer momentum would
// oscillate: see arXiv 2401.09135.)
#pragma once

#include "optim/decoupled.h"
#include "optim/device/device-replicator.h"

namespace gt {

struct LocalStepsOptions {
    float    residual_decay = 1.0f;  // of the unsent residual, per round
    float    outer_lr       = 0.7f;
    float    outer_momentum = 0.9f;   // Nesterov; 0: none
    bool     restore_norm   = false;  // of the mean change: see Inbox::restored_norm
    float    correction     = 0.0f;   // of the rule's momentum by a round, 0 to 1
    uint64_t fragments      = 1;      // that take turns: a round exchanges one of them
    bool     sign           = false;  // use the sign of the gradient
    bool     overlap        = false;  // local steps continue while a round travels

    // Whether the weights of a message are kept until its round is applied.
    bool has_base() const { return overlap || correction > 0.0f; }
};

// replicator, device: null, or where the tensors are.
std::unique_ptr<Optimizer> make_local_steps(
    OptimizerParts                    parts,
    const LocalStepsOptions &         options,
    std::unique_ptr<DeviceReplicator> replicator = nullptr,
    Device *                          device     = nullptr
);

}  // namespace gt
