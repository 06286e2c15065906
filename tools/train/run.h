// tools/train/run.h — a whole run, from its plan to the trained model: resume, train, validate, save,
// export. Text and pictures share it. Read next: ggml-train/trainer.cpp (one step).
#pragma once

#include "ggml-train/data.h"
#include "tools/train/session.h"
#include "tools/train/train-flags.h"

namespace gt {

// Text that the model writes during the run.
struct Samples {
    std::function<std::string(std::span<const WeightView> weights)> generate;  // null: no samples
    std::string                                                     prompt;
    int64_t every = 0;  // steps; 0: ten per run
};

// Trains from the checkpoint, if there is one, to the end or until Ctrl+C. The model's weights are freed
// once the devices have them. Returns the exit code.
int run_training(
    const RunPlan & plan,
    RunModel &      model,
    Data &          data,
    Session &       session,
    const Samples & samples = {}
);

}  // namespace gt
