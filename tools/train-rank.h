// tools/train-rank.h — the parts of one rank of a host, wired together: device, model, shard,
// optimizer, graphs, trainer. Every rank of every host has the same parts.
// Read next: ggml-train/trainer.cpp (one step), train-loop.cpp (a run).
#pragma once

#include "ggml-train/stream.h"
#include "ggml-train/trainer.h"
#include "models/blocks.h"
#include "tools/train-loop.h"

#include <list>

namespace gt {

// All weights of the host, each in one piece of its memory: what ranks share or devices hold is
// copied together.
struct WholeWeights {
    explicit WholeWeights(const HostState & state);

    std::vector<WeightView>       views;
    std::list<std::vector<float>> copies;
};

// Bytes that a rank keeps.
struct RankMemory {
    size_t weights     = 0;  // and gradients
    size_t state       = 0;  // of the optimizer
    size_t window      = 0;  // streamed: what passes by, and its gradients
    size_t activations = 0;
};

// GT_TEST_STEP_SECONDS, for tests and benchmarks only: the gradient of a whole batch lasts at least so
// long, as if this machine were slow, or alone on its processor. 0: as long as it does.
double test_step_seconds();

// How layers are computed on the devices that are asked for.
Form form_of(const TrainFlags & train);

class TrainRank {
public:
    // Collective. Takes the weights of task.model, which must stay until all ranks are made.
    TrainRank(
        const TrainFlags & train, const TrainTask & task, LocalGroup & ranks, RunPeers & peers
    );

    Trainer &    trainer() { return *trainer_; }
    StepRunner & graph() { return *graph_; }
    StepRunner & eval() { return *eval_; }  // Goal::logits if the task evaluates, else Goal::loss

    // Of the whole host: memory of all ranks, to be touched by rank 0 alone (on_first).
    HostState & state() { return state_; }

    RankMemory memory() const;

    // The views' weights have been changed from outside, on all ranks. Collective.
    void share_weights() { shards_->share_weights(); }

private:
    void                        make_shards(const TrainFlags & train, const ModelConfig & config);
    void                        load_weights(const ModelFile & model);
    std::unique_ptr<StepRunner> make_graph(const GraphOptions & options);
    void                        make_graphs(const TrainFlags & train, const TrainTask & task);
    double                      host_grad_norm();

    LocalGroup &                 ranks_;
    OptimOptions                 optim_;
    Backend                      backend_;
    Workers                      workers_;
    std::unique_ptr<Transformer> model_;  // streamed: the window
    std::unique_ptr<Shards>      shards_;
    Stream *                     stream_ = nullptr;  // the shards, if they are streamed
    std::unique_ptr<Optimizer>   optimizer_;
    HostState                    state_;
    std::unique_ptr<SharedState> shared_;
    std::unique_ptr<StepRunner>  graph_, eval_;
    std::unique_ptr<Trainer>     trainer_;
};

}  // namespace gt
