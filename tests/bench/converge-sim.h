// tests/bench/converge-sim.h — simulated hosts in one process, each with its own samples and optimizer;
// they exchange messages as over a network. converge.cpp defines the tasks.
#pragma once

#include "ggml-train/run/schedule.h"
#include "ggml-train/trainer.h"
#include "models/blocks.h"
#include "optim/optim.h"

namespace gt {

// The task of all hosts.
struct SimTask {
    ModelConfig config;
    int64_t     B = 1, T = 1;  // per host and step
    std::function<Batch(uint64_t step, const std::string & host)>      train;
    std::function<std::string(Backend & backend, Transformer & model)> validate;  // JSON members
};

struct SimRun {
    OptimOptions optim;
    Schedule     schedule;  // its steps are the run's
    int          n_hosts = 4, n_threads = 1;
    uint64_t     seed = 1;  // of the first weights; the task has that of the samples
    float        clip = 1.0f;
};

// Trains, then validates the weights that all hosts share. Returns JSON members, among them sent_mb: what
// one host sent.
std::string simulate(const SimTask & task, const SimRun & run);

}  // namespace gt
