// optim/demo-graph.h — FlexDeMo's extract in ggml's own ops: runs on any backend that ggml has.
//
// The same as repl-demo.cpp does, up to rounding: the gradient's DCT (two matrix products per chunk)
// folds into a momentum of coefficients, the k largest are chosen and gathered, and taken out. No node is
// custom. What hosts must agree on bit for bit (decode, merge, update) exists only in repl-demo.cpp.
#pragma once

#include "optim/chunk.h"

struct ggml_cgraph;
struct ggml_context;
struct ggml_tensor;

namespace gt {

// One tensor's part of the graph. N: chunks, n: elements of a chunk, in the order of the message.
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
