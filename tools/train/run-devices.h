// tools/train/run-devices.h — starts the ranks of this host, one per device, after a check of the devices.
#pragma once

#include "comm/local/run-ranks.h"
#include "ggml-train/device/registry.h"

namespace gt {

// Runs fn on every rank: n_ranks on the one device that `devices` (--device) names, or one rank per
// device, over NCCL. GPU kernels are first compared with the CPU on small shapes (selftest --cuda runs
// the full comparison).
void run_devices(
    const std::string & devices, int n_ranks, const std::function<void(LocalGroup & ranks)> & fn
);

// All devices that --device can name, one per line with their memory.
std::string device_list();

// An Error if the device is missing, or if kernels that are linked into this program (CUDA) do not
// compute there what the CPU computes.
void check_device(const DeviceSpec & device);

}  // namespace gt
