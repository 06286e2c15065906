// ggml-train/shard/shard.h — which rows of each parameter a rank owns, and how gradients reach their owner
// and weights the other ranks.
//
// Tensors lie one after another in flat memory, which is cut into one range per rank. Cuts are only made
// at rows where a shard may begin (optim/optim.h, cut_rows), so that the host's message does not depend
// on the number of ranks. Read next: stream.h (weights sharded too), trainer.cpp.
#pragma once

#include "ggml-train/shard/ranks.h"
#include "ggml-train/shard/weights.h"

namespace gt {

// A tensor's place in flat memory, in floats.
struct FlatTensor {
    ParamView shape;  // without memory; all rows
    int64_t   begin = 0;
    int64_t   cut   = 1;  // may be cut at multiples of this many rows

    int64_t cols() const;
};

// Cuts flat memory into n ranges of nearly equal size: n + 1 offsets, ascending.
std::vector<int64_t> cut_flat(const std::vector<FlatTensor> & tensors, int64_t size, int n);

// The rows of the tensor that lie in [begin, end) of the flat memory; no rows: {0, 0}.
std::pair<int64_t, int64_t> rows_in(const FlatTensor & tensor, int64_t begin, int64_t end);

// Where an optimizer works.
enum class OptimizerMemory {
    host,          // in host memory: on copies, if the weights are on a device
    device,        // in the device's memory, if our kernels run there; else as host
    beside_grads,  // as host, but gradients are not copied: they are only used on the device
};

// The shards of a rank as its optimizer sees them: in the memory of its device or, if the optimizer has no
// kernels for it, in host copies that are synchronized with the device.
class Shards {
public:
    virtual ~Shards() = default;

    const std::vector<ParamView> & views() const { return views_; }

    // Whether ranks own different rows; otherwise each owns all of them.
    virtual bool cut() const = 0;

    // Size of this rank's weights and gradients.
    virtual size_t bytes() const = 0;

    // Collective, after the last micro-batch: sums the views' gradients over all ranks.
    virtual void reduce_grads() = 0;

    // Collective, after the views' weights changed: makes the new weights visible to all graphs of all
    // ranks.
    virtual void share_weights() = 0;

protected:
    Shards(const Backend & backend, OptimizerMemory memory) : backend_(backend), memory_(memory) {}

    // A view of rows that begin `offset` floats into the memory of these tensors.
    void
    add_view(ParamView shape, ggml_tensor * weight, ggml_tensor * grad, int64_t offset, int64_t n);

    // Copy between device and views; nothing to do if they are the same memory.
    void fetch_grads();
    void send_weights();

    const Backend & backend_;

private:
    struct Place {
        ggml_tensor *      weight = nullptr;
        ggml_tensor *      grad   = nullptr;
        size_t             offset = 0;  // bytes
        std::vector<float> weight_copy, grad_copy;
    };
    OptimizerMemory        memory_;
    std::vector<ParamView> views_;
    std::vector<Place>     places_;
};

// Every rank has all weights (--shard none or optimizer). shapes: param_shapes. cut_rows: FlatTensor::cut
// of every shape. cut: every rank owns its own rows of gradients and optimizer state. memory: of the
// optimizer.
std::unique_ptr<Shards> make_whole_shards(
    const Backend &                backend,
    Weights &                      weights,
    const std::vector<ParamView> & shapes,
    const std::vector<int64_t> &   cut_rows,
    LocalGroup &                   ranks,
    bool                           cut,
    OptimizerMemory                memory
);

}  // namespace gt
