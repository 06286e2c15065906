// comm/local/run-ranks.h — starts the ranks of this host: one thread each, all running the same function.
//
// Two kinds of group, same contract (ggml-train/local-group.h, tests/comm/local-suite.h):
//   local-threads.cpp  data in host memory; sums in rank order, so the bits do not depend on timing
//   local-nccl.cpp     float data in the memory of each rank's GPU; NCCL is loaded at run time
// In both, `shard` may be the rank's own part of `full`.
// Read next: rendezvous.h, where ranks wait for each other and a failure ends all waits.
#pragma once

#include "ggml-train/local-group.h"

#include <chrono>

namespace gt {

struct RanksOptions {
    // Time after a failure for the other ranks to notice it at their next collective call. Then the
    // process prints the failure and exits with 1: a thread cannot be killed.
    std::chrono::milliseconds grace{10'000};

    std::string nccl;  // for run_ranks_nccl: the library to load; empty: GT_NCCL_LIB, libnccl.so.2
};

// Runs fn on n threads, one rank each, and returns when all have returned. If a rank throws or its
// thread ends while others wait for it, all others get an Error at their next collective call, and
// the first failure is thrown here, as an Error that names the rank.
void run_ranks(
    int n, const std::function<void(LocalGroup & ranks)> & fn, const RanksOptions & options = {}
);

// The same with one rank per CUDA device; reduce_scatter, all_gather and all_reduce take device memory
// that is ready when they are called, and their results are ready when they return. broadcast and
// barrier are for host memory. Throws Error if NCCL or a device is missing.
void run_ranks_nccl(
    const std::vector<int> &                        devices,
    const std::function<void(LocalGroup & ranks)> & fn,
    const RanksOptions &                            options = {}
);

}  // namespace gt
