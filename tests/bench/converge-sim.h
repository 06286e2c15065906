// tests/bench/converge-sim.h — simulated hosts in one process, each with its own samples and optimizer;
// they exchange messages as over a network. converge.cpp (text) and converge-vit.cpp (pictures) define
// the task.
#pragma once

#include "ggml-train/trainer.h"
#include "models/blocks.h"
#include "optim/optim.h"

namespace gt {

// The task of all hosts.
struct SimTask {
    std::string name;
    ModelConfig config;
    int64_t     B = 1, T = 1;  // per host and step
    float       clip = 1.0f;
    std::function<Batch(uint64_t step, const std::string & host)>      train;
    std::function<std::string(Backend & backend, Transformer & model)> validate;  // JSON members
};

// Optimizer settings, and the learning rates to try.
struct SimSetting {
    std::string        name;
    OptimOptions       optim;
    std::vector<float> rates;
};

// Runs every setting at every rate. Each run appends a line of JSON to the file `results`; runs that are
// already in it are skipped, so an interrupted benchmark can be resumed. args: the rest of the command
// line: --steps N, --hosts N, --threads N, --only NAME.
int run_settings(
    const SimTask &                 task,
    const std::vector<SimSetting> & settings,
    const std::string &             results,
    std::span<char *>               args
);

}  // namespace gt
