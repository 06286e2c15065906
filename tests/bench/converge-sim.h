// converge-sim.h — simulated hosts in one process: each has its own samples, its own copy of the model
// and its own optimizer, and hears the others' messages as over a network. converge.cpp (text) and
// converge-vit.cpp (pictures) say what is trained; this does the same to both.
#pragma once

#include "ggml-train/trainer.h"
#include "models/blocks.h"
#include "optim/optim.h"

namespace gt {

// What the hosts learn.
struct SimTask {
    std::string name;
    ModelConfig config;
    int64_t     B = 1, T = 1;  // per host and step
    float       clip = 1.0f;
    std::function<Batch(uint64_t step, const std::string & host)>      train;
    std::function<std::string(Backend & backend, Transformer & model)> validate;  // JSON members
};

// One way to learn it, with the rates to try.
struct SimSetting {
    std::string        name;
    OptimOptions       optim;
    std::vector<float> rates;
};

// Runs every setting at every rate, n_steps each. A line of JSON per run is appended to the file
// `results`; runs that are there already are skipped, so that it can be interrupted. args: what
// follows on the command line: --steps N, --hosts N, --threads N, --only NAME.
int run_settings(
    const SimTask &                 task,
    const std::vector<SimSetting> & settings,
    const std::string &             results,
    std::span<char *>               args
);

}  // namespace gt
