// ggml-train/trainer.h — one training step from samples to new weights, the same on every host.
// Every rank of a host has one; only rank 0's talks to other hosts. It knows no files and no flags.
// Read next: trainer.cpp, then optim/decoupled.cpp (what is sent), shard/shard.h (what a rank owns).
#pragma once

#include "ggml-train/data.h"
#include "ggml-train/graph/graph.h"
#include "ggml-train/run/batch-pace.h"
#include "ggml-train/run/schedule.h"
#include "ggml-train/shard/shard.h"
#include "ggml-train/shard/shared-state.h"

#include <deque>
#include <memory>

namespace gt {

struct TrainerOptions {
    float    clip    = 1.0f;  // maximum norm of the gradient; 0: no limit
    uint64_t overlap = 0;     // steps that a round travels while the next gradients are computed
    bool in_turn   = false;  // a round is over before the next message is sent: exchanges in shares
    uint64_t steps = 0;      // length of the run; 0: endless
    float    loss_scale =
        1.0f;           // half precision: factor on the loss, halved while a gradient overflows
    int64_t batch = 0;  // samples per step, a multiple of the graph's micro-batch
};

// What a trainer works with; it owns none of them. data and peers are the same on all ranks.
struct TrainerParts {
    LocalGroup &  ranks;
    StepRunner &  graph;
    Shards &      shards;
    Optimizer &   optimizer;
    SharedState & shared;
    Data &        data;
    Peers &       peers;
};

struct StepResult {
    uint64_t step     = 0;
    int64_t n_samples = 0;  // in this host's batch; 0: the run was over before a gradient was taken
    double  loss      = 0.0;  // mean over the labels of this host's batch
    double  grad_norm = 0.0;  // before clipping
    float   lr        = 0.0f;
    size_t  n_sent    = 0;      // bytes of our message
    uint64_t  round   = 0;      // step of the last round applied; with overlap an earlier step
    RoundInfo info;             // of that round
    double    waited   = 0.0;   // seconds spent waiting for other hosts
    bool      validate = true;  // this host validates after this step
};

// All functions except the last three are collective: every rank of the host calls them.
class Trainer {
public:
    Trainer(const TrainerParts & parts, const Schedule & schedule, const TrainerOptions & options);

    // Joins the run. mark: Peers::mark of the checkpoint that was loaded, or empty; fresh: the
    // weights are the run's initial ones.
    void join(std::span<const uint8_t> mark, bool fresh);

    // One step. Throws an Error if loss or gradient are NaN or Inf; the weights are then unchanged.
    StepResult train();

    // Collects all rounds in flight. Only after the last step: a round that is applied earlier than
    // usual makes another run. Throws an Error if the user wants to stop.
    void drain(StepResult & result);

    // State for a checkpoint, besides the step; on rank 0.
    std::vector<HostCounter> counters() { return {{"samples-since-round", {&n_unsent_}}}; }

    // The user wants to stop: a step was not finished, and its message may be in flight. Save, and end.
    bool is_stopped() const { return is_stopped_; }

    uint64_t step() const { return step_; }
    void     set_step(uint64_t step) { step_ = step; }

private:
    bool is_over() const { return is_stopped_ || (options_.steps > 0 && step_ >= options_.steps); }
    bool load(const Joined & joined);
    void catch_up(StepResult & result, bool admission);
    double   gradient(const Batch & batch, float loss_scale);
    Prepared prepare(StepResult & result);
    size_t   publish(Bytes message);
    void     collect(StepResult & result);
    void     collect_due(StepResult & result);

    // A closed round, in four steps.
    void finish(const Collected & collected, StepResult & result);
    void settle(const Collected & collected);
    void apply(const Round & round);
    void note(const Collected & collected, StepResult & result);
    void report(const Collected & collected, const StepResult & result);

    std::vector<Applied::Slice> slices(const SliceOrder & order) const;

    LocalGroup &         ranks_;
    StepRunner &         graph_;
    Shards &             shards_;
    Optimizer &          optimizer_;
    SharedState &        shared_;
    Data &               data_;
    Peers &              peers_;
    Schedule             schedule_;
    TrainerOptions       options_;
    Pace                 pace_;
    uint64_t             step_ = 0;        // the next one
    std::deque<uint64_t> in_flight_;       // steps published, not yet collected
    double               published_  = 0;  // when the last of them was
    uint64_t             n_joins_    = 0;
    double               hidden_     = 0;     // seconds that its round travelled while we computed
    uint64_t             n_unsent_   = 0;     // samples behind the next message
    uint64_t             applied_    = 0;     // step of the last round with messages
    bool                 validates_  = true;  // this host validates, as the last round has it
    bool                 is_stopped_ = false;

    struct {
        double  loss      = 0.0;
        int64_t n_samples = 0;
        double  seconds   = 0.0;
    } last_;  // gradient
};

}  // namespace gt
