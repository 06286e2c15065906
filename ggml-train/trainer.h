// ggml-train/trainer.h — one training step from samples to new weights, the same on every host.
// Every rank of a host has one; rank 0's alone speaks with other hosts. Knows neither files nor
// flags. Read next: shard.h (what a rank owns), optim/decoupled.cpp (what is sent).
#pragma once

#include "ggml-train/graph.h"
#include "ggml-train/pace.h"
#include "ggml-train/shard.h"
#include "ggml-train/shared-state.h"

#include <deque>

namespace gt {

struct TrainerOptions {
    float    clip    = 1.0f;  // largest norm of the gradient; 0: no limit
    uint64_t overlap = 0;     // 1: a round travels while the next gradient is computed
    uint64_t steps   = 0;     // the run ends there; 0: no end
    float loss_scale = 1.0f;  // F16: gradients are computed times this, or less if that is too much
    int64_t batch    = 0;     // samples of a step: micro-batches as the graph has them
    double  step_s   = 0.0;   // for tests: a whole batch lasts at least so long
};

// What a step needs from outside. (Of all gradients the norm is taken in an order that no machine
// changes: optim/optim.h.)
struct StepSource {
    std::function<Batch(uint64_t step, int64_t n)>     samples;  // the host's first n; on rank 0
    std::function<float(uint64_t step)>                lr;
    std::function<double()>                            grad_norm;  // of the host; on every rank
    std::function<Bytes(std::span<const Bytes> parts)> join;  // the host's message from its ranks'
};

struct StepResult {
    uint64_t step       = 0;
    double   loss       = 0.0;   // mean over the labels of this host's batch
    int64_t  n_samples  = 0;     // in it
    double   grad_norm  = 0.0;   // before clipping
    float    loss_scale = 1.0f;  // by which the gradients are too large
    float    lr         = 0.0f;
    size_t   n_sent     = 0;  // bytes of our message
    uint64_t round      = 0;  // the last one applied; with overlap that of the step before
    std::vector<std::string> in, late;                      // as in Round
    uint64_t                 up_bytes = 0, down_bytes = 0;  // since the start
    double                   waited   = 0.0;                // seconds spent waiting for other hosts
    bool                     validate = true;               // validation after this step is ours
};

// All but the two short ones are collective: every rank of the host calls them.
class Trainer {
public:
    // peers: the same on all ranks.
    Trainer(
        LocalGroup &           ranks,
        StepRunner &           graph,
        Shards &               shards,
        Optimizer &            optimizer,
        SharedState &          shared,
        RunPeers &             peers,
        StepSource             source,
        const TrainerOptions & options
    );

    // Takes its place in the run. `mark`: SharedRun::mark of the checkpoint that was loaded, or
    // nothing; `fresh`: the weights are the run's first ones. Messages that were in flight are again.
    void join(std::span<const uint8_t> mark, bool fresh);

    // One step. An Error if loss or gradient is not a number: weights are then as they were.
    StepResult train();

    // Collects what is still on its way; after the last step, never in between: a round applied
    // earlier than usual makes another run.
    void drain(StepResult & result);

    // What a checkpoint keeps of it, beside the step; on rank 0.
    std::vector<HostCounter> counters() { return {{"samples-since-round", {&n_unsent_}}}; }

    uint64_t step() const { return step_; }
    void     set_step(uint64_t step) { step_ = step; }

private:
    StepResult gradient();
    StepResult gradient(const Batch & batch, float loss_scale);
    size_t     publish(Bytes part);
    void       collect(StepResult & result);
    void       finish(const Round & round, StepResult & result);

    LocalGroup &         ranks_;
    StepRunner &         graph_;
    Shards &             shards_;
    Optimizer &          optimizer_;
    SharedState &        shared_;
    RunPeers &           peers_;
    StepSource           source_;
    TrainerOptions       options_;
    Pace                 pace_;
    uint64_t             step_ = 0;            // the next to be computed
    std::deque<uint64_t> in_flight_;           // steps published, not collected yet
    uint64_t             n_unsent_     = 0;    // samples behind the next message
    uint64_t             applied_      = 0;    // step of the last round
    double               step_seconds_ = 0.0;  // of the last gradient
};

// Mean loss over the labels of several batches; `graph` has Goal::loss. With ranks: collective, each
// takes some of the batches.
double evaluate(StepRunner & graph, const std::vector<Batch> & batches);
double evaluate(LocalGroup & ranks, StepRunner & graph, const std::vector<Batch> & batches);

// Collective. On rank 0 fn may run `graph` as often as it wants; the other ranks lend their weights.
void lead(
    LocalGroup & ranks, StepRunner & graph, const std::function<void(StepRunner & graph)> & fn
);

}  // namespace gt
