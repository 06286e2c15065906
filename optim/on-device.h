// optim/on-device.h — optimizers for tensors in device memory: bit for bit the results of decoupled.cpp
// and local-steps.cpp, computed by kernels.
//
// demo and steps without peers, with any update rule: only messages cross between host and device. Local
// steps (local-steps.cpp) take their steps there; a round copies the weights that it exchanges to the
// host and back. See has_kernels in optim.h. Read next: on-device.cpp.
#pragma once

#include "optim/tables.h"

namespace gt {

MakeOnDevice make_demo_on_device;

// One step of the rule on every tensor by its gradient, or by the gradient's sign.
void step_on_device(
    const OptimizerParts & parts, bool sign, float lr, float grad_scale, Device & device
);

// Training alone: the gradient, or its sign, is the update. REQUIRES: parts have no layout.
std::unique_ptr<Optimizer> make_steps_on_device(OptimizerParts parts, bool sign, Device & device);

}  // namespace gt
