// ggml-train/cuda/transform.cuh — chunk <-> coefficients, and the largest of them; one block each.
// Same operations in the same order as optim/math/dct.cpp, transform.cpp and topk.cpp.
#pragma once

#include "ggml-train/cuda/dct-line.cuh"
#include "ggml-train/cuda/demo.h"

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

// Chunks of this side, the default, are transformed in registers: a thread for each column, then for each row.
constexpr int kLine = 64;

__device__ inline bool in_registers(const DemoChunks & c) {
    return c.rows == kLine && c.cols == kLine;
}

// A column or a row, with `address` of each of its elements.
template <class Address>
__device__ inline void load_line(float (&v)[kLine], const float * x, const Address & address) {
    unrolled<kLine>([&](auto i) { v[decltype(i)::value] = x[address(decltype(i)::value)]; });
}
template <class Address>
__device__ inline void store_line(const float (&v)[kLine], float * x, const Address & address) {
    unrolled<kLine>([&](auto i) { x[address(decltype(i)::value)] = v[decltype(i)::value]; });
}

// to_coefficients for them. In y rows are one element apart, so that the threads of a warp use different banks of the
// memory both ways: it has kLine elements more than x. Starts and ends with a barrier.
__device__ inline void coefficients_in_registers(float * x, float * y) {
    const int line = threadIdx.x;
    float     v[kLine];
    __syncthreads();
    if (line < kLine) {
        load_line(v, x, [=](int i) { return i * kLine + line; });
        DctLine<kLine>::second(v);
        v[0] = mul(v[0], kHalfRoot);
        store_line(v, y, [=](int i) { return i * (kLine + 1) + line; });
    }
    __syncthreads();
    if (line < kLine) {
        load_line(v, y, [=](int i) { return line * (kLine + 1) + i; });
        DctLine<kLine>::second(v);
        v[0] = mul(v[0], kHalfRoot);
        store_line(v, x, [=](int i) { return i * kLine + line; });
    }
    __syncthreads();
}

// The last half of from_coefficients for them: down the columns. Starts and ends with a barrier.
__device__ inline void columns_in_registers(float * x) {
    const int  line    = threadIdx.x;
    const auto address = [=](int i) { return i * kLine + line; };
    __syncthreads();
    if (line < kLine) {
        float v[kLine];
        load_line(v, x, address);
        v[0] = mul(v[0], kHalfRoot);
        DctLine<kLine>::third(v);
        store_line(v, x, address);
    }
    __syncthreads();
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
    if (in_registers(c)) {
        coefficients_in_registers(x, y);
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
// Along the columns as sums over a cosine table: a zero adds nothing, not even a sign, and is skipped. A warp has a
// row of the result.
__device__ inline void from_coefficients(const DemoChunks & c, float *& x, float *& y) {
    if (c.rows == 1) {
        run_program(c.back, true, 1, c.cols, x, y);
        return;
    }
    __syncthreads();
    const int lane = threadIdx.x % kWarp;
    for (int f = threadIdx.x / kWarp; f < c.rows; f += kThreads / kWarp) {
        for (int first = 0; first < c.cols; first += kWarp) {
            const int col = first + lane;
            float     sum = 0.0f;
            for (int g0 = 0; g0 < c.cols; g0 += kWarp) {
                const int   g    = g0 + lane;
                const float mine = g < c.cols ? x[g * c.rows + f] : 0.0f;
                for (unsigned left = __ballot_sync(kAll, mine != 0.0f); left != 0;
                     left &= left - 1) {
                    const int   source = __ffs(int(left)) - 1;
                    const float other  = __shfl_sync(kAll, mine, source);
                    if (col < c.cols) {
                        sum = add(sum, mul(other, c.cosine[(g0 + source) * c.cols + col]));
                    }
                }
            }
            if (col < c.cols) {
                y[f * c.cols + col] = sum;
            }
        }
    }
    float * const t = x;
    x               = y;
    y               = t;
    if (in_registers(c)) {
        columns_in_registers(x);
    } else {
        run_program(c.back, false, c.rows, c.cols, x, y);
    }
}

constexpr int kDigitBits = 8;  // of a magnitude; kThreads values
constexpr int kDigits    = kThreads + 2;

// Of the values that a digit has, from the largest down: the one where the k-th of all elements is, and how many of
// its own come before and with that one. `digits` holds how often each value occurs. Starts and ends with a barrier.
__device__ inline void find_digit(int digits[], int part[], int & value, int & k) {
    __syncthreads();
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int mine = digits[kThreads - 1 - threadIdx.x];
    int       upto = mine;
    for (int d = 1; d < int(kWarp); d *= 2) {
        const int before = __shfl_up_sync(kAll, upto, d);
        upto += lane >= d ? before : 0;
    }
    if (lane == int(kWarp) - 1) {
        part[warp] = upto;
    }
    __syncthreads();
    for (int w = 0; w < warp; ++w) {
        upto += part[w];
    }
    if (upto - mine < k && k <= upto) {
        digits[kThreads]     = kThreads - 1 - threadIdx.x;
        digits[kThreads + 1] = k - (upto - mine);
    }
    __syncthreads();
    value = digits[kThreads];
    k     = digits[kThreads + 1];
    __syncthreads();
}

// Writes the indices of the k largest magnitudes of x, ascending; ties to the lower index.
// Digit by digit finds the k-th magnitude, then takes all above it and the first of those equal to it.
// Ends with a barrier.
__device__ inline void
block_top_k(const float * x, int n, int k, uint16_t * index, int digits[], int part[]) {
    unsigned kth    = 0;
    int      n_ties = k;  // elements to take of those that agree with kth so far
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
        digits[threadIdx.x] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += kThreads) {
            const unsigned bits = magnitude_bits(x[i]);
            // shifted in two steps: by 32 in one is undefined
            if ((bits ^ kth) >> shift >> kDigitBits == 0) {
                atomicAdd(&digits[bits >> shift & (kThreads - 1)], 1);
            }
        }
        int value = 0;
        find_digit(digits, part, value, n_ties);
        kth |= unsigned(value) << shift;
    }
    int ties = 0, taken = 0;  // so far
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
