// tools/check-ranks.h — holds the devices of a host to shared memory: what they tell one another, by
// NCCL, must be what ranks in one memory do. Before a run (train-rank.cpp) and in selftest --cuda.
#pragma once

#include "comm/local.h"
#include "ggml-train/device.h"

namespace gt {

// Collective. Every verb of the group, on the device's memory. An Error unless all come out right.
void check_ranks(LocalGroup & ranks, Device & device);

// The same over NCCL, on devices 0 to n - 1, each as rank; `library` in NCCL's stead. Returns how it
// went, in one line: so where NCCL cannot be loaded. An Error if it does not work.
using MakeDevice = std::function<std::shared_ptr<Device>(int index)>;
std::string check_nccl(int n, const MakeDevice & make_device, const std::string & library = {});

}  // namespace gt
