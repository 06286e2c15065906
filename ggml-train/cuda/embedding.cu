#include "ggml-train/cuda/embedding.cuh"
#include "ggml-train/cuda/kernels.h"

namespace gt::cuda {

void embedding(
    Stream          s,
    int64_t         n,
    int64_t         T,
    int64_t         C,
    const int32_t * ids,
    const float *   table,
    const float *   position,
    float *         x
) {
    launch(embedding_kernel, blocks_for(n, 1), kThreads, 0, s, n, T, C, ids, table, position, x);
}

void embedding_back(
    Stream          s,
    int64_t         n,
    int64_t         V,
    int64_t         C,
    const int32_t * ids,
    const float *   dx,
    float           beta,
    float *         table
) {
    if (beta != 1.0f) {
        launch(scale_kernel, blocks_for(V * C, kThreads), kThreads, 0, s, V * C, beta, table);
    }
    const dim3 grid(static_cast<unsigned>(n));  // a block per position, however many
    launch(embedding_back_kernel, grid, kThreads, 0, s, n, C, ids, dx, table);
}

void position_back(
    Stream s, int64_t B, int64_t T, int64_t C, const float * dx, float beta, float * position
) {
    launch(
        position_back_kernel, blocks_for(T * C, kThreads), kThreads, 0, s, B, T * C, dx, beta,
        position
    );
}

}  // namespace gt::cuda
