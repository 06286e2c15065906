// ggml-train/optimizer.h — interface: gradients in, message out; the round's messages in, new
// weights out. optim/ implements it; it knows no network, clock or ggml.
#pragma once

#include "ggml-train/device.h"
#include "ggml-train/exchange.h"

#include <array>

namespace gt {

// Kinds of tensors, since rates, decay and rules may differ between them.
enum class ParamKind { matrix, embedding, vector };

// One parameter as an optimizer sees it: the rows of it that this rank owns.
struct ParamView {
    std::string            name;
    std::array<int64_t, 4> ne{
        1, 1, 1, 1};  // real shape of the whole tensor, ggml order, never padded
    ParamKind        kind      = ParamKind::matrix;
    int64_t          row_begin = 0;  // rows of the matrix of ne[last] rows; a vector counts
    int64_t          row_end   = 0;  // as one column: its rows are its elements
    std::span<float> weight;         // the owned rows, contiguous
    std::span<float> grad;
    Device *         device = nullptr;  // in whose memory both are; null: the host's
};

// A piece of optimizer state, for checkpoints: saved from and loaded into the same memory.
struct StateTensor {
    std::string      name;
    std::span<float> values;
    bool     shared = false;    // equal on all hosts (AdamW moments) or this host's own (residual)
    Device * device = nullptr;  // in whose memory; null: the host's
    // Of a shared one: own memory, of the host, that starts from it and goes its own way. A weight
    // among them is not shared itself.
    std::vector<std::span<float>> derived{};

    Floats floats() const { return {values, device}; }
};
struct StateCounter {
    std::string name;
    uint64_t *  value  = nullptr;
    bool        shared = false;
};
// Bytes of any length, such as a message in flight: a loader resizes and fills `bytes`. Ranks may each
// have a part of what `join` makes the host's; all of them are given that when it is loaded.
struct StateBytes {
    std::string name;
    Bytes *     bytes                              = nullptr;
    bool        shared                             = false;
    Bytes (*join)(std::span<const Bytes> of_ranks) = nullptr;  // null: they are equal on all ranks
};
struct OptimizerState {
    std::vector<StateTensor>  tensors;
    std::vector<StateCounter> counters;
    std::vector<StateBytes>   blobs;
};

class Optimizer {
public:
    virtual ~Optimizer() = default;

    // Folds the gradients (times grad_scale, from clipping) into the momentum and takes the part to
    // send out of it. Returns the message; empty: no round this step.
    [[nodiscard]] virtual Bytes prepare(uint64_t step, float lr, float grad_scale) = 0;

    // Applies a round to the weights: the same on every host. A round with no messages changes
    // nothing, except after an empty message, when the local update is applied.
    virtual void apply(const Round & round) = 0;

    // Our message of that round was left out: its content returns to where it came from. If the round
    // has others (apply comes next, without has_mine), they stood for ours: the difference is owed.
    virtual void take_back(uint64_t round) = 0;

    // Everything beside the weights that the next step depends on.
    virtual OptimizerState state() = 0;
};

}  // namespace gt
