// tools/estimate.h — what a run costs on given lines: bytes, seconds, GB a day. plan prints it for
// every replicator, train-gpt for its own before it starts.
#pragma once

#include "comm/hosts.h"
#include "optim/optim.h"

namespace gt {

struct Cost {
    int64_t     round_bytes = 0;                     // of one host's message; 0: it sends none
    uint64_t    every       = 1;                     // steps per round
    double      step_s = 0.0, overlapped_s = 0.0;    // with and without travelling in between
    double      up_gb_day = 0.0, down_gb_day = 0.0;  // of one host
    std::string slowest;                             // whose line takes longest; empty: none
    double      travel_s = 0.0;                      // on it, per step
};

// REQUIRES: every line has `up` and `down`.
Cost estimate(
    const OptimOptions &           optim,
    const std::vector<ParamView> & params,
    const std::vector<HostLine> &  hosts,
    double                         compute_s
);

}  // namespace gt
