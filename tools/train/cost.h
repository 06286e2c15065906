// tools/train/cost.h — estimated traffic and step time on given links: bytes, seconds, GB per day.
#pragma once

#include "comm/run/hosts.h"
#include "ggml-train/device/registry.h"
#include "models/model-file.h"
#include "optim/optim.h"

namespace gt {

struct Cost {
    int64_t     round_bytes = 0;  // of one host's message, on average; 0: none is sent
    uint64_t    every       = 1;  // steps per round
    double      step_s = 0.0, overlapped_s = 0.0;    // without and with overlap
    double      up_gb_day = 0.0, down_gb_day = 0.0;  // of one host
    std::string slowest;                             // host with the slowest link; empty: none
    double      travel_s = 0.0;                      // transfer time on it, per step
};

// REQUIRES: every host has `up` and `down`.
Cost estimate(
    const OptimOptions &           optim,
    const std::vector<ParamView> & params,
    const std::vector<HostEntry> & hosts,
    double                         compute_s
);

// Seconds for the gradient of n samples, timed with one. T: tokens per sample.
double gradient_seconds(
    const ModelFile & model, int64_t T, int64_t n, const DeviceSpec & device, int n_threads
);

// The fewest fragments, from the default up, with which a host sends at most this many bytes per second.
uint64_t fragments_within(
    OptimOptions optim, const std::vector<ParamView> & params, double compute_s, double bytes_per_s
);

// The share of full synchronisation's gain that loco keeps with this number of fragments: the line through the
// results of tests/bench/converge.py (text, 4 hosts, 1200 steps) over the logarithm of the fragments.
double expected_share(uint64_t fragments);

}  // namespace gt
