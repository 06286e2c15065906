// ggml-train/cuda/loss.cuh — cross entropy from label indices; the gradient takes the logits' place.
// A block per row, which is read three times, from the L2 cache after the first.
#pragma once

#include "ggml-train/cuda/device.cuh"

namespace gt::cuda {

// The sum (or maximum) over the threads of a block, in all of them; `part` has an entry per warp.
// Ends with a barrier, so that part may be used again.
template <bool kMax>
__device__ float block_reduce(float v, float part[]) {
    v = kMax ? warp_max(v) : warp_sum(v);
    if (threadIdx.x % kWarp == 0) {
        part[threadIdx.x / kWarp] = v;
    }
    __syncthreads();
    float all = part[0];
    for (int w = 1; w < int(kThreads / kWarp); ++w) {
        all = kMax ? (part[w] > all ? part[w] : all) : all + part[w];
    }
    __syncthreads();
    return all;
}

__global__ void __launch_bounds__(kThreads) cross_entropy_kernel(
    int64_t         rows,
    int64_t         V,
    int64_t         ld,
    float *         logits,
    const int32_t * labels,
    float           smoothing,
    const float *   scale_at,
    bool            grad,
    float *         loss
) {
    GT_SHARED(float, part, kThreads / kWarp);
    const float scale = *scale_at;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        float *       x     = logits + r * ld;
        const int32_t label = labels[r];
        if (label < 0) {  // the same for all threads
            for (int64_t i = threadIdx.x; grad && i < ld; i += kThreads) {
                x[i] = 0.0f;
            }
            if (threadIdx.x == 0) {
                loss[r] = 0.0f;
            }
            continue;
        }
        float top = -3.4e38f;
        for (int64_t i = threadIdx.x; i < V; i += kThreads) {
            top = x[i] > top ? x[i] : top;
        }
        top         = block_reduce<true>(top, part);
        float total = 0.0f, average = 0.0f;
        for (int64_t i = threadIdx.x; i < V; i += kThreads) {
            total += expf(x[i] - top);
            average += x[i] - top;
        }
        total   = block_reduce<false>(total, part);
        average = smoothing == 0.0f ? 0.0f : block_reduce<false>(average, part) / float(V);
        const float picked = x[label] - top;
        __syncthreads();  // all have read it before it is overwritten
        if (threadIdx.x == 0) {
            loss[r] = logf(total) - (1.0f - smoothing) * picked - smoothing * average;
        }
        if (grad) {
            const float factor = scale / total, less = scale * (smoothing / float(V));
            for (int64_t i = threadIdx.x; i < ld; i += kThreads) {
                float g = i < V ? expf(x[i] - top) * factor - less : 0.0f;
                g       = i == label ? g - scale * (1.0f - smoothing) : g;
                x[i]    = g;
            }
        }
    }
}

}  // namespace gt::cuda
