// optim/on-device.h — optimizers for tensors in device memory: bit for bit the results of decoupled.cpp
// and local-steps.cpp, computed by kernels. Only messages cross between host and device.
//
// demo, and steps without peers, with any update rule; see has_kernels in optim.h. Read next:
// on-device.cpp.
#pragma once

#include "optim/tables.h"

namespace gt {

MakeOnDevice make_demo_on_device;

// Training alone: the gradient, or its sign, is the update. REQUIRES: parts have no layout.
std::unique_ptr<Optimizer> make_steps_on_device(OptimizerParts parts, bool sign, Device & device);

}  // namespace gt
