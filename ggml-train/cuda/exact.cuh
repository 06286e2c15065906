// ggml-train/cuda/exact.cuh — arithmetic rounded operation by operation, and sums over a block.
#pragma once

#include "ggml-train/cuda/device.cuh"

namespace gt::cuda {

__device__ inline float mul(float a, float b) {
    return __fmul_rn(a, b);
}
__device__ inline float add(float a, float b) {
    return __fadd_rn(a, b);
}
__device__ inline float sub(float a, float b) {
    return __fsub_rn(a, b);
}
__device__ inline float quotient(float a, float b) {
    return __fdiv_rn(a, b);
}
__device__ inline float root(float a) {
    return __fsqrt_rn(a);
}
__device__ inline double mul(double a, double b) {
    return __dmul_rn(a, b);
}
__device__ inline double add(double a, double b) {
    return __dadd_rn(a, b);
}
__device__ inline double quotient(double a, double b) {
    return __ddiv_rn(a, b);
}
__device__ inline double root(double a) {
    return __dsqrt_rn(a);
}

__device__ inline unsigned magnitude_bits(float x) {
    return __float_as_uint(x) & 0x7fffffffu;
}
__device__ inline float magnitude(float x) {
    return __uint_as_float(magnitude_bits(x));
}

constexpr float kTiny = 1e-30f;  // momenta below count as zero

// decay * m + alpha * g
__device__ inline float folded(float decay, float m, float alpha, float g) {
    const float x = add(mul(decay, m), mul(alpha, g));
    return magnitude(x) < kTiny ? 0.0f : x;
}

// The sum over the threads of a block, in all of them; `part` has an entry per warp. Integers: the
// order does not matter. Ends with a barrier.
__device__ inline int block_sum(int v, int part[]) {
    for (int d = kWarp / 2; d > 0; d /= 2) {
        v += __shfl_xor_sync(kAll, v, d);
    }
    if (threadIdx.x % kWarp == 0) {
        part[threadIdx.x / kWarp] = v;
    }
    __syncthreads();
    int all = 0;
    for (int w = 0; w < int(kThreads / kWarp); ++w) {
        all += part[w];
    }
    __syncthreads();
    return all;
}

// The same for the largest.
__device__ inline unsigned block_max(unsigned v, unsigned part[]) {
    for (int d = kWarp / 2; d > 0; d /= 2) {
        const unsigned o = __shfl_xor_sync(kAll, v, d);
        v                = o > v ? o : v;
    }
    if (threadIdx.x % kWarp == 0) {
        part[threadIdx.x / kWarp] = v;
    }
    __syncthreads();
    for (int w = 0; w < int(kThreads / kWarp); ++w) {
        v = part[w] > v ? part[w] : v;
    }
    __syncthreads();
    return v;
}

// How many of the threads before this one have the flag, and how many of all. Ends with a barrier.
__device__ inline int block_rank(bool flag, int part[], int & all) {
    const unsigned mask = __ballot_sync(kAll, flag);
    const int      lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if (lane == 0) {
        part[warp] = __popc(mask);
    }
    __syncthreads();
    int before = __popc(mask & ((1u << lane) - 1u));
    all        = 0;
    for (int w = 0; w < int(kThreads / kWarp); ++w) {
        before += w < warp ? part[w] : 0;
        all += part[w];
    }
    __syncthreads();
    return before;
}

}  // namespace gt::cuda
