#include "optim/device/demo-graph.h"

#include "ggml-backend.h"
#include "ggml.h"
#include "optim/math/dct.h"

#include <algorithm>
#include <cmath>

namespace gt {

DemoGraph build_demo_graph(
    ggml_context *    state,
    ggml_context *    nodes,
    ggml_cgraph *     graph,
    const ChunkGrid & grid,
    int64_t           top_k,
    float             decay,
    float             alpha
) {
    const int64_t s1 = grid.side_rows, s2 = grid.side_cols, n = grid.chunk_size(),
                  N = grid.n_chunks();
    const int64_t k = std::clamp<int64_t>(top_k, 1, n);
    DemoGraph     demo;
    demo.rows_table = ggml_new_tensor_2d(state, GGML_TYPE_F32, s1, s1);
    demo.cols_table = ggml_new_tensor_2d(state, GGML_TYPE_F32, s2, s2);
    demo.grad       = ggml_new_tensor_1d(state, GGML_TYPE_F32, n * N);
    demo.momentum   = ggml_new_tensor_2d(state, GGML_TYPE_F32, n, N);
    demo.zeros      = ggml_new_tensor_3d(state, GGML_TYPE_F32, 1, k, N);

    // the gradient, chunk by chunk
    ggml_tensor * x = ggml_reshape_4d(
        nodes, demo.grad, s2, grid.cols / s2, s1, grid.rows / s1
    );  // [s2, chunks per row, s1, rows of chunks]
    x = ggml_cont(
        nodes, ggml_permute(nodes, x, 0, 2, 1, 3)
    );                                         // [s2, s1, chunks per row, rows of chunks]
    x = ggml_reshape_3d(nodes, x, s2, s1, N);  // [s2, s1, N]

    // DCT along the columns, then down the rows
    x = ggml_mul_mat(nodes, demo.cols_table, x);               // [g, s1, N]
    x = ggml_cont(nodes, ggml_permute(nodes, x, 1, 0, 2, 3));  // [s1, g, N]
    x = ggml_mul_mat(nodes, demo.rows_table, x);               // [f, g, N]
    x = ggml_reshape_2d(nodes, x, n, N);                       // [n, N]

    // m = decay m + alpha DCT(g), its k largest per chunk, and the rest
    ggml_tensor * m =
        ggml_add(nodes, ggml_scale(nodes, demo.momentum, decay), ggml_scale(nodes, x, alpha));
    demo.index         = ggml_top_k(nodes, ggml_abs(nodes, m), static_cast<int>(k));  // [k, N]
    m                  = ggml_reshape_3d(nodes, m, 1, n, N);                          // [1, n, N]
    demo.value         = ggml_get_rows(nodes, m, demo.index);                         // [1, k, N]
    ggml_tensor * copy = ggml_cont(nodes, m);
    demo.remainder     = ggml_set_rows(nodes, copy, demo.zeros, demo.index);
    for (ggml_tensor * out : {demo.index, demo.value, copy, demo.remainder}) {
        ggml_set_output(out);
        ggml_build_forward_expand(graph, out);
    }
    return demo;
}

static void fill_dct(ggml_tensor * table) {
    const int64_t      n = table->ne[0];
    std::vector<float> rows(n * n);
    for (int64_t f = 0; f < n; ++f) {
        for (int64_t i = 0; i < n; ++i) {
            const double scale = std::sqrt((f == 0 ? 1.0 : 2.0) / static_cast<double>(n));
            rows[f * n + i]    = static_cast<float>(scale * cos_pi((2 * i + 1) * f, 2 * n));
        }
    }
    ggml_backend_tensor_set(table, rows.data(), 0, ggml_nbytes(table));
}

void fill_tables(const DemoGraph & demo) {
    fill_dct(demo.rows_table);
    fill_dct(demo.cols_table);
    const std::vector<float> zeros(ggml_nelements(demo.zeros), 0.0f);
    ggml_backend_tensor_set(demo.zeros, zeros.data(), 0, ggml_nbytes(demo.zeros));
}

}  // namespace gt
