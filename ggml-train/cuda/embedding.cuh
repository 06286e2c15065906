// ggml-train/cuda/embedding.cuh — lookup of rows in a table, and its gradient.
//
// The gradient is deterministic without atomics or a sort: the block of the first position that uses a
// row owns the row, and adds all positions that use it, in order.
#pragma once

#include "ggml-train/cuda/bf16.cuh"

namespace gt::cuda {

template <class T>
__global__ void __launch_bounds__(kThreads) embedding_kernel(
    int64_t         n,
    int64_t         n_places,
    int64_t         C,
    const int32_t * ids,
    const float *   table,
    const float *   position,
    T *             x
) {
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
        const int64_t row = ids[i];
        for (int64_t c = threadIdx.x; c < C; c += kThreads) {
            const float v = table[row * C + c];
            store(x + i * C + c, position ? v + position[i % n_places * C + c] : v);
        }
    }
}

// out = beta * out; beta 0 never reads.
__global__ void __launch_bounds__(kThreads) scale_kernel(int64_t n, float beta, float * out) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        out[i] = beta == 0.0f ? 0.0f : beta * out[i];
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_back_kernel(int64_t n, int64_t C, const int32_t * ids, const T * dx, float * table) {
    GT_SHARED(unsigned, named, kThreads / kWarp);  // which of a warp's positions name our row
    const int     warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const int64_t block = blockIdx.x;
    const int32_t row   = ids[block];
    for (int64_t begin = 0; begin < n; begin += kThreads) {
        const int64_t  i    = begin + threadIdx.x;
        const unsigned mask = __ballot_sync(kAll, i < n && ids[i] == row);
        if (lane == 0) {
            named[warp] = mask;
        }
        __syncthreads();
        for (int w = 0; w < int(kThreads / kWarp); ++w) {
            for (unsigned left = named[w]; left != 0; left &= left - 1) {
                const int64_t j = begin + w * kWarp + __ffs(int(left)) - 1;
                if (j < block) {
                    return;  // an earlier block owns the row; all threads of the block return here
                }
                for (int64_t c = threadIdx.x; c < C; c += kThreads) {
                    table[row * C + c] += value_of(dx[j * C + c]);
                }
            }
        }
        __syncthreads();
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads) position_back_kernel(
    int64_t B, int64_t n, const T * dx, float beta, float * position  // n: of a sample's dx
) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        float sum = beta == 0.0f ? 0.0f : beta * position[i];
        for (int64_t b = 0; b < B; ++b) {
            sum += value_of(dx[b * n + i]);
        }
        position[i] = sum;
    }
}

}  // namespace gt::cuda
