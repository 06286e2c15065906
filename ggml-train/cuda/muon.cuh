// ggml-train/cuda/muon.cuh — products of matrices with the bits of optim/math/fixed-gemm.cpp, and the other
// steps of Muon.
//
// A block makes a tile of the product from tiles of its factors in shared memory, four floats at a time
// where they are aligned. A thread keeps 8 x 4 sums in registers and adds to them in ascending order, one
// fused multiply-add after the other.
#pragma once

#include "ggml-train/cuda/exact.cuh"
#include "ggml-train/cuda/muon.h"

namespace gt::cuda {

// ---- element by element ------------------------------------------------------------------------------

__device__ inline float nesterov_value(float scale, float momentum, float u, float * m, int64_t i) {
    const float x = mul(u, scale);
    if (momentum <= 0.0f) {
        return x;
    }
    m[i] = add(mul(momentum, m[i]), x);
    return add(x, mul(momentum, m[i]));
}

__global__ void __launch_bounds__(kThreads)
    nesterov_kernel(int64_t n, float scale, float momentum, const float * u, float * m, float * x) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        x[i] = nesterov_value(scale, momentum, u[i], m, i);
    }
}

__global__ void __launch_bounds__(kThreads)
    nesterov_sign_kernel(int64_t n, SignStep s, const float * u, float * m, float * p) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        const float x    = nesterov_value(s.scale, s.momentum, u[i], m, i);
        const float sign = x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f;
        p[i]             = sub(mul(p[i], s.keep), mul(s.step, sign));
    }
}

// One over the norm of each matrix, whose squares are summed in parts; one thread each, for the parts have an order.
__global__ void __launch_bounds__(1)
    inverse_norm_kernel(int64_t n_parts, const double * parts, float * inverse) {
    double sum = 0.0;
    for (int64_t i = 0; i < n_parts; ++i) {
        sum = add(sum, parts[blockIdx.x * n_parts + i]);
    }
    inverse[blockIdx.x] = float(quotient(1.0, add(root(sum), 1e-20)));
}

// blockIdx.y: the matrix
__global__ void __launch_bounds__(kThreads)
    normalise_kernel(int64_t n, const float * inverse, float * x) {
    const float factor = inverse[blockIdx.y];
    x += int64_t(blockIdx.y) * n;
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        x[i] = mul(x[i], factor);
    }
}

// ---- products ----------------------------------------------------------------------------------------

constexpr int kSide           = 64;  // of a tile of the product
constexpr int kDepth          = 16;  // of the tiles of its factors
constexpr int kProductThreads = 128;
constexpr int kQuads          = kSide / 4 + 1;  // one more: writers down a column hit other banks

struct alignas(16) Quad {
    float v[4];
};

// out = keep * given + mix * (a · b), or a · b alone if nothing is given; [cols, rows]. symmetric: it
// is known to be, so that half of it is copied from the other half. Each is an array of such matrices, one after
// another, of which blockIdx.z takes one.
struct Product {
    int64_t       rows = 0, cols = 0, depth = 0;
    const float * a     = nullptr;
    const float * b     = nullptr;
    const float * given = nullptr;
    float         keep = 0.0f, mix = 1.0f;
    float *       out       = nullptr;
    bool          symmetric = false;
};

// Elements [first, first + kSide) of a factor's n, for kDepth values of k. In memory a factor's elements
// lie side by side (across), or its k do. `absent` fills elements beyond the end.
template <bool kAcross>
struct Factor {
    const float * from;
    int64_t       n, depth, first;
    float         absent;

    // The first element and k of each four that this thread copies.
    static constexpr int  kFours = kSide * kDepth / 4 / kProductThreads;
    __device__ static int element(int i) {
        const int e = i * kProductThreads + int(threadIdx.x);
        return kAcross ? e % (kSide / 4) * 4 : e / (kDepth / 4);
    }
    __device__ static int k_of(int i) {
        const int e = i * kProductThreads + int(threadIdx.x);
        return kAcross ? e / (kSide / 4) : e % (kDepth / 4) * 4;
    }

    __device__ void fetch(int64_t k0, Quad (&to)[kFours]) const {
        const int64_t lines = kAcross ? depth : n, width = kAcross ? n : depth;
        const bool    aligned = width % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
        for (int i = 0; i < kFours; ++i) {
            const int64_t at = first + element(i), k = k0 + k_of(i);
            const int64_t line = kAcross ? k : at, begin = kAcross ? at : k;
            const int64_t left = line < lines ? width - begin : 0;
            const float * x    = from + line * width + begin;
            if (aligned && left >= 4) {
                to[i] = *reinterpret_cast<const Quad *>(x);
                continue;
            }
            for (int j = 0; j < 4; ++j) {
                to[i].v[j] = j < left ? x[j] : absent;
            }
        }
    }

    __device__ static void store(const Quad (&four)[kFours], Quad * to) {
        for (int i = 0; i < kFours; ++i) {
            Quad * const at = to + k_of(i) * kQuads + element(i) / 4;
            if constexpr (kAcross) {
                *at = four[i];
            } else {
                for (int j = 0; j < 4; ++j) {
                    at[j * kQuads].v[element(i) % 4] = four[i].v[j];
                }
            }
        }
    }
};

template <bool kAcrossA, bool kAcrossB>
__global__ void __launch_bounds__(kProductThreads) product_kernel(Product p) {
    GT_SHARED(Quad, a, kDepth * kQuads);
    GT_SHARED(Quad, b, kDepth * kQuads);
    const int64_t row0 = int64_t(blockIdx.y) * kSide, col0 = int64_t(blockIdx.x) * kSide;
    if (p.symmetric && col0 < row0) {
        return;  // the whole block: another one copies its tile here
    }
    const int64_t matrix = blockIdx.z, size = p.rows * p.cols;
    p.a += matrix * p.rows * p.depth;
    p.b += matrix * p.depth * p.cols;
    p.out += matrix * size;
    p.given += p.given ? matrix * size : 0;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float     sum[8][4] = {};
    // 0 times -0 is -0, which changes no sum, not even the sign of one that is zero
    const Factor<kAcrossA> left{p.a, p.rows, p.depth, row0, 0.0f};
    const Factor<kAcrossB> right{p.b, p.cols, p.depth, col0, -0.0f};
    Quad                   next_a[left.kFours], next_b[right.kFours];
    left.fetch(0, next_a);
    right.fetch(0, next_b);
    for (int64_t k0 = 0; k0 < p.depth; k0 += kDepth) {
        left.store(next_a, a);
        right.store(next_b, b);
        __syncthreads();
        // the next tiles travel while these are multiplied
        if (k0 + kDepth < p.depth) {
            left.fetch(k0 + kDepth, next_a);
            right.fetch(k0 + kDepth, next_b);
        }
        for (int k = 0; k < kDepth; ++k) {
            const Quad upper = a[k * kQuads + y], lower = a[k * kQuads + 8 + y];
            const Quad column = b[k * kQuads + x];
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) {
                    sum[i][j]     = __fmaf_rn(upper.v[i], column.v[j], sum[i][j]);
                    sum[4 + i][j] = __fmaf_rn(lower.v[i], column.v[j], sum[4 + i][j]);
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i) {
        const int64_t row = row0 + i / 4 * (kSide / 2) + 4 * y + i % 4;
        for (int j = 0; j < 4; ++j) {
            const int64_t col = col0 + 4 * x + j, at = row * p.cols + col;
            if (row < p.rows && col < p.cols) {
                const float value =
                    p.given ? add(mul(p.keep, p.given[at]), mul(p.mix, sum[i][j])) : sum[i][j];
                p.out[at] = value;
                if (p.symmetric && col0 > row0) {
                    p.out[col * p.cols + row] = value;
                }
            }
        }
    }
}

}  // namespace gt::cuda
