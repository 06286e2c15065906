// optim/local-arrays.h — interface: what local steps (local-steps.cpp) keep for each weight of this rank, and the
// work on it. local-on-host.cpp, local-on-device.cpp.
#pragma once

#include "optim/local-steps.h"

namespace gt {

class LocalArrays {
public:
    virtual ~LocalArrays() = default;

    // One step of the rule.
    virtual void step(float lr, float grad_scale) = 0;

    // Folds the change since the anchor into the residual, and takes the message out of it: its bytes after
    // the head are written. The weights return to the anchor unless rounds overlap.
    virtual void extract(const Part & part, Bytes & message) = 0;

    // Moves the anchor by the mean of a round, which may be empty; the weights continue from it with our
    // change that is in no message. share: of the mean that they keep. correct: the rule's momentum, too.
    virtual void apply(const Inbox & inbox, const Plan & plan, float share, bool correct) = 0;

    // Adds the change that a message of ours holds back to the weights.
    virtual void take_back(const Part & part, const Bytes & message) = 0;

    virtual void drop_residual()                   = 0;
    virtual void add_state(OptimizerState & state) = 0;
};

// parts: must outlive the result. Without a layout only step works, and only on the host.
std::unique_ptr<LocalArrays>
make_local_on_host(const OptimizerParts & parts, const LocalStepsOptions & options);
std::unique_ptr<LocalArrays> make_local_on_device(
    const OptimizerParts &            parts,
    const LocalStepsOptions &         options,
    std::unique_ptr<DeviceReplicator> replicator,
    Device &                          device
);

// Adds tensors of one kind.
void add_tensors(
    OptimizerState &                  state,
    const OptimizerParts &            parts,
    const char *                      name,
    std::span<const std::span<float>> tensors,
    bool                              shared,
    Device *                          device
);

}  // namespace gt
