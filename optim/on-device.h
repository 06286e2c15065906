// optim/on-device.h — optimizers for tensors in a device's memory: the same bits as on the host, by
// the kernels of ggml-train/cuda/demo.h and muon.h. Only messages leave the device, only messages
// enter it.
//
// demo and steps without peers, with any rule; for everything else optim.h says that it has no
// kernels. Read next: device-demo.cpp.
#pragma once

#include "optim/decoupled.h"
#include "optim/optim.h"

namespace gt {

struct DemoSettings {
    ChunkTarget chunk;
    int64_t     top_k = 32;
    Wire        wire  = Wire::fp32;
};

std::unique_ptr<Optimizer> make_demo_on_device(
    OptimizerParts           parts,
    const DecoupledOptions & options,
    const DemoSettings &     demo,
    Device &                 device
);

// Each host on its own: the gradient, or its sign, goes to the rule. parts have no messenger.
std::unique_ptr<Optimizer> make_steps_on_device(OptimizerParts parts, bool sign, Device & device);

std::unique_ptr<Rule> make_sgd_on_device(std::vector<RuleTensor> tensors, Device & device);
std::unique_ptr<Rule>
make_adamw_on_device(std::vector<RuleTensor> tensors, const AdamOptions & options, Device & device);

std::unique_ptr<Rule>
make_muon_on_device(std::vector<RuleTensor> tensors, const MuonOptions & options, Device & device);

// Zeroed device memory in the shape of the given tensors.
std::vector<std::span<float>>
make_device_state(Device & device, std::span<const size_t> sizes, const char * what);

}  // namespace gt
