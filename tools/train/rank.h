// tools/train/rank.h — one rank of a host: device, model, shard, optimizer, graphs and trainer, wired
// together. Read next: ggml-train/trainer.cpp (one step), run.cpp (a run).
#pragma once

#include "ggml-train/shard/stream.h"
#include "ggml-train/trainer.h"
#include "models/blocks.h"
#include "models/model-file.h"
#include "optim/device/dct-momentum.h"
#include "tools/train/train-flags.h"

#include <list>

namespace gt {

// All weights of the host, or their running averages (--ema), each contiguous in host memory: sharded weights and those
// of devices are copied.
struct WholeWeights {
    explicit WholeWeights(const HostState & state);

    std::vector<WeightView>       views;
    std::list<std::vector<float>> copies;
};

// Bytes of memory that a rank uses.
struct RankMemory {
    size_t weights        = 0;  // and gradients
    size_t state          = 0;  // of the optimizer
    size_t window         = 0;  // streamed: the blocks at hand, and their gradients
    size_t activations    = 0;
    bool   momentum_graph = false;  // the momentum is on the device, folded by ggml's ops
};

// How layers are computed on the devices.
Form form_of(const TrainFlags & train);

// What --compute auto means: bf16 if our kernels run and every device multiplies it on tensor cores, else f32.
std::string chosen_compute(const TrainFlags & train);

// The type of products, of a compute that was chosen.
ggml_type compute_type(const TrainFlags & train);

// For training in micro-batches of B samples of T tokens, as the flags say. Not set: smoothing, and what
// depends on the batches.
GraphOptions
graph_options(const TrainFlags & train, const ModelConfig & config, int64_t B, int64_t T);

// Whether factors of products have half precision (--compute f16 or bf16).
bool is_half(const TrainFlags & train);

class TrainRank {
public:
    // Collective. Copies the weights of the model, which must live until all ranks are made.
    TrainRank(
        const RunPlan &   plan,
        const ModelFile & model,
        Data &            data,
        LocalGroup &      ranks,
        Peers &           peers
    );

    Trainer &    trainer() { return *trainer_; }
    StepRunner & graph() { return *graph_; }
    StepRunner & eval() { return *eval_; }

    // Called after every micro-batch of this rank; training: of a step, not of a validation.
    void watch(std::function<void(bool training)> watch) { watch_ = std::move(watch); }

    // Of the whole host: memory of all ranks; only rank 0 may touch it (on_first).
    HostState & state() { return state_; }

    RankMemory memory() const;

    // Collective. With the running average of the weights, if there is one.
    Score validate(Data & data, bool last);

    // Collective. To be called after the weights were changed from outside.
    void share_weights() { shards_->share_weights(); }

private:
    void make_shards(const RunPlan & plan, const ModelConfig & config);
    void make_momentum(const RunPlan & plan, const std::vector<ParamView> & params);
    void load_weights(const ModelFile & model);
    void swap_average();
    std::unique_ptr<StepRunner> make_graph(const GraphOptions & options);
    void                        make_graphs(const RunPlan & plan, const ModelConfig & config);

    LocalGroup &                 ranks_;
    OptimOptions                 optim_;
    Backend                      backend_;
    Workers                      workers_;
    std::unique_ptr<Transformer> model_;     // streamed: the window
    std::unique_ptr<DctMomentum> momentum_;  // null: the optimizer has it
    std::unique_ptr<Shards>      shards_;
    Stream *                     stream_ = nullptr;  // the shards, if they are streamed
    std::unique_ptr<Optimizer>   optimizer_;
    HostState                    state_;
    std::unique_ptr<SharedState> shared_;
    std::unique_ptr<StepRunner>  graph_, eval_;
    std::function<void(bool)>    watch_;
    std::unique_ptr<Trainer>     trainer_;
};

}  // namespace gt
