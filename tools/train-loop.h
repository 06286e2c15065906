// tools/train-loop.h — a whole run: start or go on, train, evaluate, save, export. Serves text and
// pictures alike; what differs is in TrainTask. Read next: ggml-train/trainer.cpp (one step).
#pragma once

#include "ggml-train/batch.h"
#include "ggml-train/exchange.h"
#include "ggml-train/model-file.h"
#include "tools/flags.h"
#include "tools/train-flags.h"

namespace gt {

struct TrainTask {
    ModelFile    model;                   // its weights move to the device when the run starts
    int64_t      T            = 0;        // tokens per sample
    const char * unit         = "tokens";  // what is counted per second
    int64_t      n_per_sample = 0;        // of them in one sample

    // Samples [begin, end) of a step on this host.
    std::function<Batch(uint64_t step, const std::string & host, int64_t begin, int64_t end)> train;
    // The validation set, in batches of B samples, the same each time.
    std::function<std::vector<Batch>(int64_t B)> validation;
    // Text by the model as it is, for people; may be empty.
    std::function<std::string(std::span<const WeightView> weights)> sample;
    std::string prompt;
    int64_t     sample_every = 0;  // steps; 0: at the end only
};

// If the run's folder has a checkpoint: takes the run's flags from it (a flag on the command line
// that contradicts them is an Error) and returns its path, else "". With --fresh: sets it aside.
std::string find_run(const TrainFlags & train, Flags & flags, const ModelConfig & config);

// Fills the flags that depend on model and data. n_samples: how many the training data holds.
void choose_defaults(TrainFlags & train, const ModelConfig & config, int64_t T, int64_t n_samples);

// Trains from the checkpoint (if any) to the end or until Ctrl+C. Returns the exit code.
int train_loop(
    TrainFlags & train, const Flags & flags, TrainTask & task, Peers & peers, const std::string & checkpoint
);

}  // namespace gt
