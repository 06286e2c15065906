// comm/local/check-ranks.h — checks the collectives of devices (NCCL) against those of shared memory.
// Runs before a run (tools/train/rank.cpp) and in selftest --cuda.
#pragma once

#include "comm/local/run-ranks.h"
#include "ggml-train/base/device.h"

namespace gt {

// Collective. Runs every verb of the group on the device's memory. An Error if a result differs.
void check_ranks(LocalGroup & ranks, Device & device);

// The same over NCCL on devices 0 to n - 1. library: used instead of NCCL. Returns the result in one
// line, also if NCCL can't be loaded. An Error if a result differs.
using MakeDevice = std::function<std::shared_ptr<Device>(int index)>;
std::string check_nccl(int n, const MakeDevice & make_device, const std::string & library = {});

}  // namespace gt
