// ggml-train/cuda/loss.cuh — cross entropy from label indices; the gradient may take the logits' place.
// A block per row, which is read twice.
#pragma once

#include "ggml-train/cuda/bf16.cuh"

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

template <class T>
__global__ void __launch_bounds__(kThreads) cross_entropy_kernel(
    int64_t         rows,
    int64_t         V,
    int64_t         ld,
    const T *       logits,
    const int32_t * labels,
    float           smoothing,
    const float *   scale_at,
    T *             grad,
    float *         loss
) {
    GT_SHARED(float, part, kThreads / kWarp);
    const float scale = *scale_at;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const T *     x     = logits + r * ld;
        const int32_t label = labels[r];
        if (label < 0) {  // the same for all threads
            for (int64_t i = 4 * threadIdx.x; grad && i < ld; i += 4 * kThreads) {
                store_four(grad + r * ld, i, ld, {});
            }
            if (threadIdx.x == 0) {
                loss[r] = 0.0f;
            }
            continue;
        }
        // each thread's sum of exponentials, below its own largest logit so far
        float top = -3.4e38f, total = 0.0f, sum = 0.0f;
        for (int64_t i = 4 * threadIdx.x; i < V; i += 4 * kThreads) {
            const Four<float> v      = load_four(x, i, ld);
            float             higher = top;
            for (int j = 0; j < 4; ++j) {
                higher = i + j < V && v.x[j] > higher ? v.x[j] : higher;
            }
            total *= expf(top - higher);
            top = higher;
            for (int j = 0; j < 4 && i + j < V; ++j) {
                total += expf(v.x[j] - top);
                sum += v.x[j];
            }
        }
        const float own = top;
        top             = block_reduce<true>(top, part);
        total           = block_reduce<false>(total * expf(own - top), part);
        const float average =
            smoothing == 0.0f ? 0.0f : block_reduce<false>(sum, part) / float(V) - top;
        const float picked = value_of(x[label]) - top;
        __syncthreads();  // all have read it before it is overwritten
        if (threadIdx.x == 0) {
            loss[r] = logf(total) - (1.0f - smoothing) * picked - smoothing * average;
        }
        if (grad) {
            const float factor = scale / total, less = scale * (smoothing / float(V));
            for (int64_t i = 4 * threadIdx.x; i < ld; i += 4 * kThreads) {
                Four<float> v = load_four(x, i, ld);
                for (int j = 0; j < 4; ++j) {
                    float g = i + j < V ? expf(v.x[j] - top) * factor - less : 0.0f;
                    v.x[j]  = i + j == label ? g - scale * (1.0f - smoothing) : g;
                }
                store_four(grad + r * ld, i, ld, v);
            }
        }
    }
}

}  // namespace gt::cuda
