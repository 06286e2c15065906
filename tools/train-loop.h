// tools/train-loop.h — a whole run: start or go on, train, evaluate, save, export. Serves text and
// pictures alike; what differs is in TrainTask. Read next: ggml-train/trainer.cpp (one step).
#pragma once

#include "ggml-train/batch.h"
#include "ggml-train/model-file.h"
#include "tools/flags.h"
#include "tools/together.h"
#include "tools/train-flags.h"

namespace gt {

class StepRunner;

struct Score {
    double loss = 0.0, accuracy = -1.0;  // accuracy: share, if known
};

struct TrainTask {
    ModelFile    model;                    // its weights move to the device when the run starts
    bool         fresh        = true;      // these are the run's first weights
    int64_t      T            = 0;         // tokens per sample
    const char * unit         = "tokens";  // what is counted per second
    int64_t      n_per_sample = 0;         // of them in one sample
    uint64_t     data_digest  = 0;         // of all that `train` gives; 0: not known

    // Samples [begin, end) of a step on this host.
    std::function<Batch(uint64_t step, const std::string & host, int64_t begin, int64_t end)> train;
    // The validation set, in batches of B samples, the same each time.
    std::function<std::vector<Batch>(int64_t B)> validation;
    // Pictures: takes the place of `validation`; the graph gives logits. last: the run is at its end.
    std::function<Score(StepRunner & logits, bool last)> evaluate;
    std::function<double()>
         waited;  // seconds that `train` has waited for data so far; may be empty
    bool mixup = false, depth = false;  // what batches bring: see Batch
    // Text by the model as it is, for people; may be empty.
    std::function<std::string(std::span<const WeightView> weights)> sample;
    std::string                                                     prompt;
    int64_t sample_every = 0;  // steps; 0: ten in all
};

// If the run's folder has a checkpoint: takes the run's flags from it (a flag on the command line
// that contradicts them is an Error) and returns its path, else "". With --fresh: sets it aside.
// own: flags of the run that only this tool has.
std::string find_run(
    const TrainFlags &    train,
    Flags &               flags,
    const ModelConfig &   config,
    const Flags::Values & own = {}
);

// Fills the flags that depend on model and data. n_samples: how many the training data holds.
void choose_defaults(TrainFlags & train, const ModelConfig & config, int64_t T, int64_t n_samples);

// Takes the settings that all hosts share, and what follows from them. own: flags of the run that
// only this tool has.
void settle(
    TrainFlags &          train,
    Flags &               flags,
    TrainTask &           task,
    Together &            together,
    const Flags::Values & own = {}
);

// Trains from the checkpoint (if any) to the end or until Ctrl+C. Returns the exit code.
// REQUIRES: the flags are settled.
int train_loop(
    TrainFlags &        train,
    Flags &             flags,
    TrainTask &         task,
    Together &          together,
    const std::string & checkpoint
);

}  // namespace gt
