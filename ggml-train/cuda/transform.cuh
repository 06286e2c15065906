// ggml-train/cuda/transform.cuh — chunk <-> coefficients, and the largest of them; one block each.
// Same operations in the same order as optim/math/dct.cpp, transform.cpp and topk.cpp.
#pragma once

#include "ggml-train/cuda/demo.h"
#include "ggml-train/cuda/exact.cuh"

namespace gt::cuda {

constexpr float kHalfRoot = 0.70710678118654752440f;

// Applies an operation to the line that starts at x, `step` floats from element to element.
__device__ inline float
dct_value(const DctProgram & p, const DctOp & op, const float * x, int step) {
    if (op.q >= 0) {
        return add(mul(x[op.p * step], op.a), mul(x[op.q * step], op.b));
    }
    if (op.q == -1) {
        return mul(x[op.p * step], op.a);
    }
    const DctDot dot = p.dots[-2 - op.q];
    float        sum = mul(x[dot.first * step], p.table[dot.at]);
    for (int i = 1; i < dot.n; ++i) {
        sum = add(sum, mul(x[(dot.first + i) * step], p.table[dot.at + i * dot.stride]));
    }
    return sum;
}

// Runs a program down the columns of a rows x cols matrix in x, or along its rows. y is scratch of
// the same size; x and y change places from stage to stage, so that afterwards x is the result.
// Starts and ends with a barrier.
__device__ inline void
run_program(const DctProgram & p, bool along, int rows, int cols, float *& x, float *& y) {
    __syncthreads();
    const int step = along ? 1 : cols;
    for (int s = 0; s < p.n_stages; ++s) {
        for (int e = threadIdx.x; e < rows * cols; e += kThreads) {
            const int line = along ? e / cols * cols : e % cols;
            y[e] = dct_value(p, p.ops[s * p.n + (along ? e % cols : e / cols)], x + line, step);
        }
        __syncthreads();
        float * const t = x;
        x               = y;
        y               = t;
    }
}

__device__ inline int64_t chunk_offset(const DemoChunks & c, int64_t chunk) {
    return chunk / c.per_row * c.row_step + chunk % c.per_row * c.cols;
}

// The chunk in x (rows x cols) becomes its coefficients in the order of their indices.
__device__ inline void to_coefficients(const DemoChunks & c, float *& x, float *& y) {
    if (c.rows == 1) {
        run_program(c.along, true, 1, c.cols, x, y);
        return;
    }
    run_program(c.down, false, c.rows, c.cols, x, y);
    run_program(c.along, true, c.rows, c.cols, x, y);
    for (int e = threadIdx.x; e < c.rows * c.cols; e += kThreads) {
        y[e % c.cols * c.rows + e / c.cols] = x[e];
    }
    __syncthreads();
    float * const t = x;
    x               = y;
    y               = t;
}

// The factor of a coefficient before from_coefficients.
__device__ inline float scaled(const DemoChunks & c, float value, int index) {
    const float v = mul(value, c.factor);
    return c.rows == 1 ? v : mul(v, index < c.rows && c.cols > 1 ? kHalfRoot : 1.0f);
}

// The opposite: scaled coefficients in x, zero where there is none, become the chunk's elements.
// Along the columns as sums over a cosine table: a zero adds nothing, not even a sign.
__device__ inline void from_coefficients(const DemoChunks & c, float *& x, float *& y) {
    if (c.rows == 1) {
        run_program(c.back, true, 1, c.cols, x, y);
        return;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < c.rows * c.cols; e += kThreads) {
        const int f = e / c.cols, col = e % c.cols;
        float     sum = 0.0f;
        for (int g = 0; g < c.cols; ++g) {
            sum = add(sum, mul(x[g * c.rows + f], c.cosine[g * c.cols + col]));
        }
        y[e] = sum;
    }
    float * const t = x;
    x               = y;
    y               = t;
    run_program(c.back, false, c.rows, c.cols, x, y);
}

// Writes the indices of the k largest magnitudes of x, ascending; ties to the lower index.
// Bit by bit finds the k-th magnitude, then takes all above it and the first of those equal to it.
// Ends with a barrier.
__device__ inline void block_top_k(const float * x, int n, int k, uint16_t * index, int part[]) {
    unsigned kth = 0;
    for (int bit = 30; bit >= 0; --bit) {
        const unsigned at_least = kth | 1u << bit;
        int            count    = 0;
        for (int i = threadIdx.x; i < n; i += kThreads) {
            count += magnitude_bits(x[i]) >= at_least ? 1 : 0;
        }
        kth = block_sum(count, part) >= k ? at_least : kth;
    }
    int above = 0;
    for (int i = threadIdx.x; i < n; i += kThreads) {
        above += magnitude_bits(x[i]) > kth ? 1 : 0;
    }
    const int n_ties = k - block_sum(above, part);
    int       ties = 0, taken = 0;  // so far
    for (int begin = 0; begin < n; begin += kThreads) {
        const int      i    = begin + int(threadIdx.x);
        const unsigned bits = i < n ? magnitude_bits(x[i]) : 0;
        const bool     tie  = i < n && bits == kth;
        int            all  = 0;
        const int      rank = ties + block_rank(tie, part, all);
        ties += all;
        const bool take = i < n && (bits > kth || (tie && rank < n_ties));
        const int  to   = taken + block_rank(take, part, all);
        taken += all;
        if (take) {
            index[to] = uint16_t(i);
        }
    }
    __syncthreads();
}

}  // namespace gt::cuda
