// optim/on-device.h — optimizers for tensors in device memory: bit for bit the results of decoupled.cpp
// and local-steps.cpp, computed by kernels. Only messages cross between host and device.
// Read next: on-device.cpp, local-on-device.cpp.
#pragma once

#include "optim/decoupled.h"
#include "optim/device/device-replicator.h"

namespace gt {

std::unique_ptr<Optimizer> make_decoupled_on_device(
    OptimizerParts                    parts,
    std::unique_ptr<DeviceReplicator> replicator,
    const DecoupledOptions &          options,
    Device &                          device
);

// One step of the rule on every tensor by its gradient, or by the gradient's sign.
void step_on_device(
    const OptimizerParts & parts, bool sign, float lr, float grad_scale, Device & device
);

// Training alone: the gradient, or its sign, is the update. REQUIRES: parts have no layout.
std::unique_ptr<Optimizer> make_steps_on_device(OptimizerParts parts, bool sign, Device & device);

}  // namespace gt
