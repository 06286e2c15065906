// ggml-train/trainer.h — one training step from samples to new weights, the same on every rank of
// every host. Knows neither files nor flags. Read next: optim/decoupled.cpp (what is sent).
#pragma once

#include "ggml-train/graph.h"
#include "ggml-train/weights.h"

namespace gt {

struct TrainerOptions {
    float clip    = 1.0f;  // largest norm of the gradient; 0: no limit
    int   overlap = 0;     // 1: a round travels while the next gradient is computed
};

struct StepResult {
    uint64_t step      = 0;
    double   loss      = 0.0;  // mean over the labels of this host's batch
    double   grad_norm = 0.0;  // before clipping
    float    lr        = 0.0f;
    int      n_missing = 0;    // hosts whose message did not count
    double   waited    = 0.0;  // seconds spent waiting for other hosts
};

class Trainer {
public:
    // grad_norm: of all gradients, in an order that no machine changes (optim/clip.h).
    using GradNorm = std::function<double()>;

    Trainer(StepGraph & graph, Optimizer & optimizer, Peers & peers, GradNorm grad_norm, const TrainerOptions & options);

    // One step: as many micro-batches as `batch` holds of the graph's size.
    // An Error if loss or gradient is not a number: weights are then as they were.
    StepResult train(const Batch & batch, float lr);

    uint64_t step() const { return step_; }
    void     set_step(uint64_t step) { step_ = step; }

private:
    StepGraph &    graph_;
    Optimizer &    optimizer_;
    Peers &        peers_;
    GradNorm       grad_norm_;
    TrainerOptions options_;
    uint64_t       step_ = 0;
};

// Mean loss over the labels of several batches; `graph` has Goal::loss.
double evaluate(StepGraph & graph, const std::vector<Batch> & batches);

}  // namespace gt
