// ggml-train/cuda/rules.cuh — the element-wise parts of a step: fold, sign, sgd, adamw, and sums of
// squares; and digests. Same operations in the same order as optim/decoupled.cpp, sgd.cpp, adamw.cpp,
// grad-norm.cpp and ggml-train/base/base.cpp.
#pragma once

#include "ggml-train/cuda/demo.h"
#include "ggml-train/cuda/squares.cuh"

namespace gt::cuda {

__global__ void __launch_bounds__(kThreads)
    fold_kernel(int64_t n, float decay, float alpha, const float * g, float * m) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        m[i] = folded(decay, m[i], alpha, g[i]);
    }
}

__global__ void __launch_bounds__(kThreads) take_sign_kernel(int64_t n, float * u) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        u[i] = u[i] > 0.0f ? 1.0f : u[i] < 0.0f ? -1.0f : 0.0f;
    }
}

__global__ void __launch_bounds__(kThreads)
    sgd_kernel(int64_t n, float keep, float step, const float * u, float * p) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        p[i] = sub(mul(p[i], keep), mul(step, u[i]));
    }
}

// One weight, and its moments.
__device__ inline void adamw_element(const AdamStep & s, float g, float & p, float & m, float & v) {
    const float a1 = sub(1.0f, s.b1), a2 = sub(1.0f, s.b2);
    m = add(mul(s.b1, m), mul(a1, g));
    v = add(mul(s.b2, v), mul(a2, mul(g, g)));
    m = magnitude(m) < kTiny ? 0.0f : m;
    v = v < kTiny ? 0.0f : v;
    p = sub(mul(p, s.keep), mul(s.rate, quotient(m, add(mul(root(v), s.root), s.eps))));
}

__global__ void __launch_bounds__(kThreads) adamw_kernel(
    int64_t n, AdamStep s, float scale, const float * u, float * p, float * m, float * v
) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        float mi = m[i], vi = v[i];
        adamw_element(s, mul(u[i], scale), p[i], mi, vi);
        m[i] = mi;
        v[i] = vi;
    }
}

// Rows with moments in 8 bits.
struct MomentRows {
    int64_t n, cols, n_blocks, n_floats;  // the latter two of each
};

// A block of them, a value per thread, as optim/rules/moments.cpp.
struct MomentsOfBlock {
    MomentCode code;
    float *    scale;
    uint8_t *  codes;

    __device__ MomentsOfBlock(
        MomentCode code, const MomentRows & rows, float * from, int64_t row, int64_t block
    )
        : code(code), scale(from + row * rows.n_floats + block),
          codes(
              reinterpret_cast<uint8_t *>(from + row * rows.n_floats + rows.n_blocks) +
              block * kMomentBlock
          ) {}

    __device__ float get() const {
        const int      at = codes[threadIdx.x], c = at & code.most;
        const unsigned sign = unsigned(at & ~code.most) << 24;
        const unsigned bits = unsigned(c + code.first) << kMomentShift;
        return mul(__uint_as_float(c == 0 ? sign : bits | sign), *scale);
    }

    // has: false for the threads behind the end of a row.
    __device__ void set(bool has, float x, unsigned part[]) const {
        constexpr unsigned kLargest = 0x7f7fffffu, kHalf = 1u << (kMomentShift - 1);
        const unsigned     top  = block_max(has ? magnitude_bits(x) : 0u, part);
        const float        most = __uint_as_float(top < kLargest ? top : kLargest);
        if (has) {
            const float y      = quotient(x, top > 0 ? most : 1.0f);
            const int   least  = x == 0.0f ? 0 : code.least;
            const int   c      = int((magnitude_bits(y) + kHalf) >> kMomentShift) - code.first;
            codes[threadIdx.x] = uint8_t(
                (c < least       ? least
                 : c > code.most ? code.most
                                 : c) |
                int(__float_as_uint(y) >> 24 & 0x80u)
            );
        }
        if (threadIdx.x == 0) {
            *scale = most;
        }
    }
};

__global__ void __launch_bounds__(kThreads) adamw_q8_kernel(
    MomentRows rows, AdamStep s, float scale, const float * u, float * p, float * m, float * v
) {
    static_assert(kMomentBlock == kThreads);
    GT_SHARED(unsigned, part, kThreads / kWarp);
    for (int64_t b = blockIdx.x; b < rows.n * rows.n_blocks; b += gridDim.x) {
        const int64_t        row = b / rows.n_blocks, block = b % rows.n_blocks;
        const int64_t        col = block * kMomentBlock + threadIdx.x, i = row * rows.cols + col;
        const MomentsOfBlock first(kFirstMoment, rows, m, row, block);
        const MomentsOfBlock second(kSecondMoment, rows, v, row, block);
        const bool           has = col < rows.cols;
        float                mi = 0.0f, vi = 0.0f;
        if (has) {
            mi = first.get();
            vi = second.get();
            adamw_element(s, mul(u[i], scale), p[i], mi, vi);
        }
        first.set(has, mi, part);
        second.set(has, vi, part);
    }
}

// The array that a piece belongs to: the last that begins at it or before.
__device__ inline Span span_of(const Spans & arrays, int64_t piece) {
    if (!arrays.table) {
        const int64_t each = arrays.n_pieces / arrays.n, i = piece / each;
        Span          span = arrays.only;
        span.data          = static_cast<const float *>(span.data) + i * span.n;
        span.first         = i * each;
        return span;
    }
    int64_t low = 0, high = arrays.n;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (arrays.table[middle].first <= piece) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return arrays.table[low];
}

// Sixteen lanes per piece.
__global__ void __launch_bounds__(kThreads) sums_of_squares_kernel(Spans arrays, double * parts) {
    const int64_t per_grid = int64_t(gridDim.x) * (kThreads / kSums);
    // the same for all lanes of a warp
    const int64_t rounds = (arrays.n_pieces + per_grid - 1) / per_grid;
    for (int64_t r = 0; r < rounds; ++r) {
        const int64_t u =
            r * per_grid + int64_t(blockIdx.x) * (kThreads / kSums) + threadIdx.x / kSums;
        const float * x     = nullptr;
        int64_t       begin = 0, end = 0;
        if (u < arrays.n_pieces) {
            const Span span = span_of(arrays, u);
            x               = static_cast<const float *>(span.data);
            begin           = (u - span.first) * kSquaresPiece;
            end             = begin + kSquaresPiece < span.n ? begin + kSquaresPiece : span.n;
        }
        const double total = piece_squares(begin, end, [&](int64_t i) { return x[i]; });
        if (threadIdx.x % kSums == 0 && u < arrays.n_pieces) {
            parts[u] = total;
        }
    }
}

// mix and digest64 of base.cpp.
__device__ inline uint64_t mixed(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

__global__ void __launch_bounds__(kWarp) digests_kernel(Spans arrays, uint64_t * out) {
    for (int64_t b = int64_t(blockIdx.x) * kWarp + threadIdx.x; b < arrays.n_pieces;
         b += int64_t(gridDim.x) * kWarp) {
        const Span      span = span_of(arrays, b);
        const int64_t   at   = (b - span.first) * kDigestPiece;
        const uint8_t * from = static_cast<const uint8_t *>(span.data) + at;
        const int64_t   n    = span.n - at < kDigestPiece ? span.n - at : kDigestPiece;
        const uint64_t  seed = span.seed + uint64_t(b - span.first);
        uint64_t        h    = mixed(seed ^ (uint64_t(n) * 0x9e3779b97f4a7c15ull));
        for (int64_t i = 0; i + 8 <= n; i += 8) {
            const auto * word = reinterpret_cast<const uint32_t *>(from + i);
            h                 = (h ^ (word[0] | uint64_t(word[1]) << 32)) * 0x9fb21c651e98df25ull;
            h ^= h >> 32;
        }
        uint64_t tail = 0;
        for (int64_t i = n / 8 * 8; i < n; ++i) {
            tail = tail << 8 | from[i];
        }
        out[b] = mixed(h ^ tail);
    }
}

}  // namespace gt::cuda
