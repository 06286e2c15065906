// optim/device/demo-graph.h — FlexDeMo's extract in ggml ops: runs on any ggml backend.
//
// repl-demo.cpp up to rounding: the gradient's DCT (two matrix products per chunk) is folded into the
// momentum, and the k largest coefficients are gathered and set to zero. No custom ops. Decoding, merging
// and updating must agree bit for bit between hosts and exist only in repl-demo.cpp.
#pragma once

#include "optim/math/chunk.h"

struct ggml_cgraph;
struct ggml_context;
struct ggml_tensor;

namespace gt {

// The graph of one tensor. N: number of chunks, n: elements of a chunk, in message order.
struct DemoGraph {
    ggml_tensor * rows_table = nullptr;  // DCT matrices; fill_tables
    ggml_tensor * cols_table = nullptr;
    ggml_tensor * grad       = nullptr;  // in, the tensor's elements
    ggml_tensor * momentum   = nullptr;  // in, [n, N] coefficients
    ggml_tensor * zeros      = nullptr;  // in, [1, k, N]
    ggml_tensor * index      = nullptr;  // out, [k, N] I32, in no order
    ggml_tensor * value      = nullptr;  // out, [1, k, N]: the coefficients there
    ggml_tensor * remainder  = nullptr;  // out, [1, n, N]: the momentum without them
};

// Inputs are made in `state`, everything else in `nodes`, and the outputs added to `graph`.
// m = decay m + alpha DCT(g).
DemoGraph build_demo_graph(
    ggml_context *    state,
    ggml_context *    nodes,
    ggml_cgraph *     graph,
    const ChunkGrid & grid,
    int64_t           top_k,
    float             decay,
    float             alpha
);

// Uploads the DCT matrices and the zeros, once `state` has a buffer.
void fill_tables(const DemoGraph & demo);

}  // namespace gt
