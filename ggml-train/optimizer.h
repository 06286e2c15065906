// ggml-train/optimizer.h — interface: gradients in, message out; the round's messages in, new
// weights out. optim/ implements it, without network, clock or ggml.
#pragma once

#include "ggml-train/base/device.h"
#include "ggml-train/peers.h"

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
    int64_t          row_begin = 0;     // rows of the matrix of ne[last] rows; a vector counts
    int64_t          row_end   = 0;     // as one column: its rows are its elements
    std::span<float> weight;            // the owned rows, contiguous
    std::span<float> grad;              // likewise; empty: only its device has it
    Device *         device = nullptr;  // whose memory holds both; null: the host's
    float            rate   = 1.0f;     // factor on the learning rate; 0: frozen
};

// One tensor of optimizer state, for checkpoints: saved from and loaded into the same memory.
struct StateTensor {
    std::string      name;
    std::span<float> values;
    bool     shared = false;    // equal on all hosts (AdamW moments) or this host's own (residual)
    Memory * memory = nullptr;  // null: the host's
    // Only for shared tensors: memory that starts as a copy of this tensor and then changes on each
    // host by itself (local steps). A weight in this list is not shared itself.
    std::vector<Floats> derived{};

    Floats floats() const { return {values, memory}; }
};
struct StateCounter {
    std::string name;
    uint64_t *  value  = nullptr;
    bool        shared = false;
};
// Bytes of any length, such as a message in flight; a loader resizes and fills `bytes`. If every rank
// holds a part, `join` makes the host's bytes from them; on load all ranks receive those.
struct StateBytes {
    std::string name;
    Bytes *     bytes                              = nullptr;
    bool        shared                             = false;
    Bytes (*join)(std::span<const Bytes> of_ranks) = nullptr;  // null: equal on all ranks
};
struct OptimizerState {
    std::vector<StateTensor>  tensors;
    std::vector<StateCounter> counters;
    std::vector<StateBytes>   blobs;
};

// State tensors of the running average of the weights: this, and the weight's name.
inline constexpr const char * kAveragePrefix = "ema ";

// How gradients are scaled before they are used.
struct Clip {
    float max_norm   = 0.0f;  // larger gradients are scaled down to this norm; 0: no limit
    float loss_scale = 1.0f;  // factor that the gradients still contain (F16)
};

struct Prepared {
    Bytes  message;          // of the whole host, on rank 0; empty: no round this step
    double grad_norm = 0.0;  // of the whole host, before clipping; NaN or Inf: nothing has changed
};

// Every rank of a host has one. prepare is collective: all ranks call it.
class Optimizer {
public:
    virtual ~Optimizer() = default;

    // Takes the norm of the host's gradient, clips, folds the gradient into the momentum, extracts
    // what is sent, and joins the ranks' parts into the host's message.
    [[nodiscard]] virtual Prepared prepare(uint64_t step, float lr, const Clip & clip = {}) = 0;

    // Applies a round to the weights: the same on every host. A round with no messages changes
    // nothing, except after an empty message, when the local update is applied.
    virtual void apply(const Round & round) = 0;

    // Called when our message missed the commit: adds it back to the momentum. If the round committed
    // other messages, apply() follows with has_mine == false and subtracts their mean, so that only
    // the difference stays pending.
    virtual void take_back(uint64_t step) = 0;

    // Clears what was computed but never sent.
    virtual void drop_residual() = 0;

    // Everything besides the weights that the next step depends on.
    virtual OptimizerState state() = 0;

    // Exchanges the weights with their running average, if there is one: for validation and at the end.
    // A second call exchanges them back, bit for bit.
    virtual void swap_average() {}
};

}  // namespace gt
