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
    Out             x
) {
    with_type(x.bf16, [&]<class X>(X *) {
        launch(
            embedding_kernel<X>, blocks_for(n, 1), kThreads, 0, s, n, T, C, ids, table, position,
            typed<X>(x)
        );
    });
}

void embedding_back(
    Stream s, int64_t n, int64_t V, int64_t C, const int32_t * ids, In dx, float beta, float * table
) {
    if (beta != 1.0f) {
        launch(scale_kernel, blocks_for(V * C, kThreads), kThreads, 0, s, V * C, beta, table);
    }
    const dim3 grid(static_cast<unsigned>(n));  // a block per position, however many
    with_type(dx.bf16, [&]<class X>(X *) {
        launch(embedding_back_kernel<X>, grid, kThreads, 0, s, n, C, ids, typed<X>(dx), table);
    });
}

void position_back(Stream s, int64_t B, int64_t T, int64_t C, In dx, float beta, float * position) {
    with_type(dx.bf16, [&]<class X>(X *) {
        launch(
            position_back_kernel<X>, blocks_for(T * C, kThreads), kThreads, 0, s, B, T * C,
            typed<X>(dx), beta, position
        );
    });
}

}  // namespace gt::cuda
