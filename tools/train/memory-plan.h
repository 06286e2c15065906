// tools/train/memory-plan.h — estimates the memory of a rank, and chooses micro-batch and sharding so that
// it fits.
#pragma once

#include "ggml-train/graph/ops.h"
#include "models/model-config.h"
#include "tools/train/train-flags.h"

namespace gt {

class MemoryPlan {
public:
    // Measures a model of one and of two blocks with one and with two samples. Blocks and samples add
    // up; what does not depend on the samples (copies of weights, a chunk of logits) is counted once.
    MemoryPlan(const RunPlan & plan, const ModelConfig & config, Form form);

    // Bytes of one rank.
    double need(const std::string & shard, int64_t micro) const;

private:
    double n_weights_ = 0, n_window_ = 0, n_ranks_ = 1;  // window: embedding, head, two blocks
    double state_    = 0;  // bytes of the optimizer, which ranks divide
    double working_  = 0;  // and what it needs beside them on each device
    double base_     = 0;  // bytes of an adapter's base, mapped once
    double n_blocks_ = 1;

    void count_optimizer(const RunPlan & plan, const ModelConfig & config, Form form);

    // Activations in bytes: whatever the batch, and for each sample.
    struct PerBatch {
        double fixed = 0, each = 0;
    };
    static PerBatch
    activations(const ModelConfig & config, int64_t n_blocks, const RunPlan & plan, Form form);

    PerBatch first_, more_;  // of the first block with embedding and head, of every other
    double   kept_ = 0;      // the input of a block, for each sample
};

// The micro-batch of at most `most` samples that keeps the ranks busy for the shortest time; the largest
// of several.
int64_t divide_batch(int64_t batch, int64_t most, int n_ranks);

struct MemoryFit {
    std::string shard;
    int64_t     micro     = 0;
    bool        recompute = false;
};

// The least sharding (if plan.shard is auto) and the largest micro-batch up to plan.micro that fit the
// memory of a rank's device; if not even one sample does, the same with recomputed activations. fixed: the
// micro-batch was given and stays.
MemoryFit fit_memory(const RunPlan & plan, const ModelConfig & config, bool fixed);

// The same for an NVIDIA GPU of `bytes` that need not be there.
struct CardFit {
    MemoryFit fit;
    double    need = 0.0;  // bytes
    bool      fits = false;
};
CardFit fit_card(const RunPlan & plan, const ModelConfig & config, double bytes);

}  // namespace gt
