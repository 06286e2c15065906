// optim/device/momentum-graph.h — demo's momentum in ggml's ops: on any backend, beside the gradients.
//
// Two matrix products transform a chunk; an op of ggml selects the largest coefficients. Large tensors are
// worked on slice by slice, so that intermediate tensors stay small and dispatches within the limits of
// devices. Rounding differs from repl-demo.cpp's, so this is only for what a host does by itself.
#pragma once

#include "optim/device/dct-momentum.h"

struct ggml_tensor;

namespace gt {

class Backend;

// grads: of all tensors, in the backend's memory; chunks: how each is cut. Null: the backend lacks an op, or
// a chunk has a side of more than kLongestSide elements, which is too long for a product.
constexpr int64_t kLongestSide = 1024;

std::unique_ptr<DctMomentum> make_momentum_graph(
    const Backend &                    backend,
    const std::vector<ggml_tensor *> & grads,
    const std::vector<DctChunks> &     chunks,
    float                              decay
);

}  // namespace gt
