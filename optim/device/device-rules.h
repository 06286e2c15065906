// optim/device/device-rules.h — the update rules for tensors in device memory: bit for bit the results
// of rules/, computed by the kernels of ggml-train/cuda/demo.h and muon.h.
#pragma once

#include "optim/rules/rule.h"

namespace gt {

std::unique_ptr<UpdateRule> make_sgd_on_device(std::vector<RuleTensor> tensors, Device & device);
std::unique_ptr<UpdateRule>
make_adamw_on_device(std::vector<RuleTensor> tensors, const AdamOptions & options, Device & device);
std::unique_ptr<UpdateRule>
make_muon_on_device(std::vector<RuleTensor> tensors, const MuonOptions & options, Device & device);

// Shards of one shape are neighbours in it: Muon orthogonalises their matrices together.
std::vector<int> order_by_shape(std::span<const ParamView> params);

// Zeroed device memory for tensors of the given sizes. what: named in an out-of-memory error.
std::vector<std::span<float>>
make_device_state(Device & device, std::span<const size_t> sizes, const char * what);

}  // namespace gt
