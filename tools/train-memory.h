// tools/train-memory.h — what a rank will need of memory, and what is chosen so that it fits: the
// micro-batch, and what ranks divide between them.
#pragma once

#include "tools/train-loop.h"

namespace gt {

class MemoryPlan {
public:
    // Measures a model of one and of two blocks with one sample; more of both add up.
    MemoryPlan(const TrainFlags & train, const TrainTask & task);

    // Bytes of one rank, all in all.
    double need(const std::string & shard, int64_t micro) const;

private:
    double n_weights_ = 0, n_window_ = 0, n_ranks_ = 1;  // window: embedding, head, two blocks
    double state_ = 0;                                   // floats per weight
    double first_ = 0, more_ = 0, kept_ = 0;  // activations: one block, each further, its input
    double n_blocks_ = 1;
};

// The micro-batch of at most `most` samples with which the ranks are done first; of equals the largest.
int64_t divide_batch(int64_t batch, int64_t most, int n_ranks);

// Settles --shard auto and, unless it is `given`, --micro: the least sharding and the largest
// micro-batch that fit the memory of a rank's device.
void fit_memory(TrainFlags & train, const TrainTask & task, bool given);

}  // namespace gt
