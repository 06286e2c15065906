// ggml-train/cuda/norm.cuh — layer norm and RMS norm, both ways, and column sums.
//
// A warp per row where rows are independent; for sums down the columns a block of 32 columns by
// 32 row groups, added up in the order of the groups. No atomics: the same bits every time.
#pragma once

#include "ggml-train/cuda/bf16.cuh"

namespace gt::cuda {

constexpr int kColumns = 32, kRowGroups = 32;  // of a block that sums down the columns

template <bool kCentred, class X, class Y>
__global__ void __launch_bounds__(kThreads) norm_kernel(
    int64_t       rows,
    int64_t       C,
    float         eps,
    const X *     x,
    const float * w,
    const float * b,
    Y *           y,
    float *       stats
) {
    const int64_t lane  = threadIdx.x % kWarp;
    const int64_t warps = int64_t(gridDim.x) * (kThreads / kWarp);
    for (int64_t r = int64_t(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp; r < rows;
         r += warps) {
        const X * xr   = x + r * C;
        float     mean = 0.0f;
        if (kCentred) {
            for (int64_t i = 4 * lane; i < C; i += 4 * kWarp) {
                const Four<float> v = load_four(xr, i, C);
                mean += (v.x[0] + v.x[1]) + (v.x[2] + v.x[3]);
            }
            mean = warp_sum(mean) / float(C);
        }
        float squares = 0.0f;
        for (int64_t i = 4 * lane; i < C; i += 4 * kWarp) {
            const Four<float> v = load_four(xr, i, C);
            for (int j = 0; j < 4; ++j) {
                const float d = i + j < C ? v.x[j] - mean : 0.0f;
                squares += d * d;
            }
        }
        const float inv = 1.0f / sqrtf(warp_sum(squares) / float(C) + eps);
        for (int64_t i = 4 * lane; i < C; i += 4 * kWarp) {
            Four<float>       v      = load_four(xr, i, C);
            const Four<float> factor = load_four(w, i, C);
            for (int j = 0; j < 4; ++j) {
                v.x[j] = (v.x[j] - mean) * inv * factor.x[j];
            }
            if (kCentred) {
                const Four<float> offset = load_four(b, i, C);
                for (int j = 0; j < 4; ++j) {
                    v.x[j] += offset.x[j];
                }
            }
            store_four(y + r * C, i, C, v);
        }
        if (lane == 0) {
            stats[2 * r]     = mean;
            stats[2 * r + 1] = inv;
        }
    }
}

// dx may be add: an element is read before it is written, by the same thread.
template <bool kCentred, class X, class Y>
__global__ void __launch_bounds__(kThreads) norm_back_kernel(
    int64_t       rows,
    int64_t       C,
    const Y *     dy,
    const X *     x,
    const float * w,
    const float * stats,
    const X *     add,
    X *           dx
) {
    const int64_t lane  = threadIdx.x % kWarp;
    const int64_t warps = int64_t(gridDim.x) * (kThreads / kWarp);
    for (int64_t r = int64_t(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp; r < rows;
         r += warps) {
        const float mean = stats[2 * r], inv = stats[2 * r + 1];
        float       sum_g = 0.0f, sum_gn = 0.0f;
        for (int64_t i = 4 * lane; i < C; i += 4 * kWarp) {
            const Four<float> d = load_four(dy + r * C, i, C), v = load_four(x + r * C, i, C),
                              factor = load_four(w, i, C);
            for (int j = 0; j < 4; ++j) {  // beyond the row g is 0
                const float g = d.x[j] * factor.x[j];
                sum_g += g;
                sum_gn += g * ((v.x[j] - mean) * inv);
            }
        }
        const float mean_g  = kCentred ? warp_sum(sum_g) / float(C) : 0.0f;
        const float mean_gn = warp_sum(sum_gn) / float(C);
        for (int64_t i = 4 * lane; i < C; i += 4 * kWarp) {
            const Four<float> d = load_four(dy + r * C, i, C), v = load_four(x + r * C, i, C),
                              factor = load_four(w, i, C);
            Four<float> sum          = add ? load_four(add + r * C, i, C) : Four<float>{};
            for (int j = 0; j < 4; ++j) {
                const float n = (v.x[j] - mean) * inv;
                sum.x[j] += (d.x[j] * factor.x[j] - mean_g - n * mean_gn) * inv;
            }
            store_four(dx + r * C, i, C, sum);
        }
    }
}

// out[c] = beta * out[c] + the sum of a column, whose 32 partial sums are in part[group][column].
__device__ inline void finish_column(float part[], int64_t c, int64_t C, float beta, float * out) {
    if (threadIdx.y == 0 && c < C) {
        float sum = part[threadIdx.x];
        for (int g = 1; g < kRowGroups; ++g) {
            sum += part[g * kColumns + threadIdx.x];
        }
        out[c] = beta == 0.0f ? sum : beta * out[c] + sum;
    }
}

template <class X, class Y>
__global__ void __launch_bounds__(kColumns * kRowGroups) norm_back_params_kernel(
    int64_t       rows,
    int64_t       C,
    const Y *     dy,
    const X *     x,
    const float * stats,
    float         beta,
    float *       dw,
    float *       db
) {
    GT_SHARED(float, part_w, kRowGroups * kColumns);
    GT_SHARED(float, part_b, kRowGroups * kColumns);
    const int64_t c     = int64_t(blockIdx.x) * kColumns + threadIdx.x;
    float         sum_w = 0.0f, sum_b = 0.0f;
    if (c < C) {
        for (int64_t r = threadIdx.y; r < rows; r += kRowGroups) {
            const float g = value_of(dy[r * C + c]);
            sum_w += g * ((value_of(x[r * C + c]) - stats[2 * r]) * stats[2 * r + 1]);
            sum_b += g;
        }
    }
    part_w[threadIdx.y * kColumns + threadIdx.x] = sum_w;
    part_b[threadIdx.y * kColumns + threadIdx.x] = sum_b;
    __syncthreads();
    finish_column(part_w, c, C, beta, dw);
    if (db) {
        finish_column(part_b, c, C, beta, db);
    }
}

template <class T>
__global__ void __launch_bounds__(kColumns * kRowGroups)
    sum_rows_kernel(int64_t rows, int64_t C, const T * x, int64_t ld, float beta, float * out) {
    GT_SHARED(float, part, kRowGroups * kColumns);
    const int64_t c   = int64_t(blockIdx.x) * kColumns + threadIdx.x;
    float         sum = 0.0f;
    if (c < C) {
        for (int64_t r = threadIdx.y; r < rows; r += kRowGroups) {
            sum += value_of(x[r * ld + c]);
        }
    }
    part[threadIdx.y * kColumns + threadIdx.x] = sum;
    __syncthreads();
    finish_column(part, c, C, beta, out);
}

}  // namespace gt::cuda
