// ggml-train/shard.h — which rows of each parameter a rank owns, and how gradients and weights get
// there and back.
//
// Tensors lie one after another in flat memory, which is cut into one slice per rank, only where a
// row may begin a shard (optim/optim.h, cut_rows): so the host's message does not depend on the
// number of ranks. Read next: stream.h (weights sharded too), trainer.cpp.
#pragma once

#include "ggml-train/ranks.h"
#include "ggml-train/weights.h"

namespace gt {

enum class Sharding {
    none,       // every rank has everything
    optimizer,  // every rank has the weights; gradients and optimizer state are cut
    full,       // weights too: a block is gathered when it is needed
};

// At multiples of how many rows a tensor may be cut.
using CutRows = std::function<int64_t(const ParamView & param)>;

// A tensor's place in flat memory, in floats.
struct FlatTensor {
    ParamView shape;  // without memory; all rows
    int64_t   begin = 0;
    int64_t   cut   = 1;  // rows

    int64_t cols() const;
};

// Where n slices of nearly equal size begin, and the end: n + 1 offsets, ascending.
std::vector<int64_t> cut_flat(const std::vector<FlatTensor> & tensors, int64_t size, int n);

// The rows of the tensor that lie in [begin, end) of the flat memory; no rows: {0, 0}.
std::pair<int64_t, int64_t> rows_in(const FlatTensor & tensor, int64_t begin, int64_t end);

// A rank's part of the model as its optimizer sees it: in the memory of its device or, if the
// optimizer can't work there, in copies on the host that are brought there and back.
class Shards {
public:
    virtual ~Shards() = default;

    const std::vector<ParamView> & views() const { return views_; }

    // Whether ranks own different rows (or all own everything).
    virtual bool cut() const = 0;

    // Of the memory for weights and gradients that this rank keeps.
    virtual size_t bytes() const = 0;

    // Collective. After the last micro-batch: the views' gradients become the sum over all ranks.
    virtual void reduce_grads() = 0;

    // Collective. The views' weights have changed: all graphs of all ranks see the new ones.
    virtual void share_weights() = 0;

protected:
    Shards(const Backend & backend, bool on_device) : backend_(backend), on_device_(on_device) {}

    // A view of rows that begin `offset` floats into the memory of these tensors.
    void
    add_view(ParamView shape, ggml_tensor * weight, ggml_tensor * grad, int64_t offset, int64_t n);

    // Between device and views; nothing to do where they are the same memory.
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
    bool                   on_device_;
    std::vector<ParamView> views_;
    std::vector<Place>     places_;
};

// Weights whole on every rank: Sharding::none and Sharding::optimizer. shapes: param_shapes.
// on_device: the optimizer works in the device's memory.
std::unique_ptr<Shards> make_whole_shards(
    const Backend &                backend,
    Weights &                      weights,
    const std::vector<ParamView> & shapes,
    LocalGroup &                   ranks,
    bool                           cut,
    bool                           on_device,
    const CutRows &                cut_rows
);

}  // namespace gt
