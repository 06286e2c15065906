// tools/train/cost.h — estimated traffic and step time on given links: bytes, seconds, GB per day, dollars.
#pragma once

#include "comm/run/hosts.h"
#include "models/model-file.h"
#include "optim/optim.h"
#include "tools/train/train-flags.h"

#include <set>

namespace gt {

struct Cost {
    int64_t     round_bytes = 0;  // of one host's message, on average; 0: none is sent
    uint64_t    every       = 1;  // steps per round
    double      step_s = 0.0, overlapped_s = 0.0;    // without and with overlap
    double      up_gb_day = 0.0, down_gb_day = 0.0;  // of one host
    std::string slowest;                             // host with the slowest link; empty: none
    double      travel_s   = 0.0;                    // transfer time on it, per step
    double      hub_gb_day = 0.0;                    // sent by the hub; 0: the run has a store
    double      disk_gb    = 0.0;                    // that hub or store need, about
    double      writes_day = 0.0, reads_day = 0.0;   // requests to a bucket
    double      dollars_month = 0.0;                 // for them and the space, at R2's prices
};

// REQUIRES: every host has `up` and `down`. The hub is on the line of its host.
Cost estimate(
    const OptimOptions &           optim,
    const std::vector<ParamView> & params,
    const Hosts &                  run,
    double                         compute_s
);

// The hosts of a run that are there, for estimate; the links of a typical home where hosts.txt has none.
Hosts hosts_there(const Hosts & all, const std::set<std::string> & names);

// Seconds for the gradient of run.batch samples of T tokens, timed with one sample, on the first device and
// in the form and type of the run. REQUIRES: run.compute and run.threads are chosen.
double gradient_seconds(const ModelFile & model, int64_t T, const TrainFlags & run);

// The fewest fragments, from the default up, with which a host sends at most this many bytes per second.
uint64_t fragments_within(
    OptimOptions optim, const std::vector<ParamView> & params, double compute_s, double bytes_per_s
);

// The share of full synchronisation's gain that loco keeps with this number of fragments: the line through the
// results of tests/bench/converge.py (mean of text and images, 4 hosts, 1200 steps) over the logarithm of the
// fragments.
double expected_share(uint64_t fragments);

}  // namespace gt
