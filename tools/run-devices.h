// tools/run-devices.h — starts the ranks of this host, one per device, and trusts no GPU unseen.
#pragma once

#include "comm/local.h"

namespace gt {

// Runs fn on every rank: n_ranks of them on the one device that `devices` names (--device), or one
// per device, over NCCL. GPUs are held to the CPU first, briefly (selftest --cuda does it at length).
void run_devices(
    const std::string & devices, int n_ranks, const std::function<void(LocalGroup & ranks)> & fn
);

// An Error unless our kernels compute on this GPU what the CPU computes.
void trust_gpu(int index);

}  // namespace gt
