// ggml-train/cpu/tile.h — small matrix products of tiles in the cache, for attention.
//
// The right-hand matrix and the result are row-major with rows padded to whole registers; the
// left-hand one is read an element at a time, so it may be transposed or unpadded. Larger
// products go to the library: gemm.cpp.
#pragma once

#include "ggml-train/cpu/simd.h"

#include <vector>

namespace gt::cpu {

// ---- products --------------------------------------------------------------------------------------

// The register tile: kTileRows x kTileCols sums, and room for kTileCols registers of B and one of A.
#ifdef __AVX512F__
constexpr int kTileRows = 6, kTileCols = 4;
#else
constexpr int kTileRows = 6, kTileCols = 2;
#endif

struct View {
    const float * data;
    int64_t       row, col;  // distance from row to row and from column to column
};

// c [R x N registers] (+)= a [R x K] * b [K x N registers]
template <int R, int N>
inline void
tile_kernel(int64_t K, View a, const float * b, int64_t ldb, float * c, int64_t ldc, bool add) {
    Vec acc[R][N];
    for (int r = 0; r < R; ++r) {
        for (int n = 0; n < N; ++n) {
            acc[r][n] = add ? load(c + r * ldc + n * kLanes) : Vec{};
        }
    }
    for (int64_t k = 0; k < K; ++k) {
        Vec right[N];
        for (int n = 0; n < N; ++n) {
            right[n] = load(b + k * ldb + n * kLanes);
        }
        for (int r = 0; r < R; ++r) {
            const Vec left = splat(a.data[r * a.row + k * a.col]);
            for (int n = 0; n < N; ++n) {
                acc[r][n] += left * right[n];
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int n = 0; n < N; ++n) {
            store(c + r * ldc + n * kLanes, acc[r][n]);
        }
    }
}

template <int R>
inline void tile_columns(
    int64_t n, int64_t K, View a, const float * b, int64_t ldb, float * c, int64_t ldc, bool add
) {
    int64_t       j    = 0;
    const int64_t step = kTileCols * kLanes;
    for (; j + step <= n; j += step) {
        tile_kernel<R, kTileCols>(K, a, b + j, ldb, c + j, ldc, add);
    }
    switch ((n - j) / kLanes) {
#ifdef __AVX512F__
        case 3:
            tile_kernel<R, 3>(K, a, b + j, ldb, c + j, ldc, add);
            break;
        case 2:
            tile_kernel<R, 2>(K, a, b + j, ldb, c + j, ldc, add);
            break;
#endif
        case 1:
            tile_kernel<R, 1>(K, a, b + j, ldb, c + j, ldc, add);
            break;
        default:
            break;
    }
}

// R rows of the result, 1 <= R <= kTileRows; n is a multiple of kLanes.
inline void tile_rows(
    int           R,
    int64_t       n,
    int64_t       K,
    View          a,
    const float * b,
    int64_t       ldb,
    float *       c,
    int64_t       ldc,
    bool          add
) {
    static_assert(kTileRows == 6);
    switch (R) {
        case 6:
            tile_columns<6>(n, K, a, b, ldb, c, ldc, add);
            break;
        case 5:
            tile_columns<5>(n, K, a, b, ldb, c, ldc, add);
            break;
        case 4:
            tile_columns<4>(n, K, a, b, ldb, c, ldc, add);
            break;
        case 3:
            tile_columns<3>(n, K, a, b, ldb, c, ldc, add);
            break;
        case 2:
            tile_columns<2>(n, K, a, b, ldb, c, ldc, add);
            break;
        case 1:
            tile_columns<1>(n, K, a, b, ldb, c, ldc, add);
            break;
        default:
            break;
    }
}

// ---- to and from tiles -----------------------------------------------------------------------------

// Scratch of one thread, cut into pieces that start on cache lines.
class Scratch {
public:
    explicit Scratch(int64_t n) : memory_(buffer()) {
        if ((int64_t) memory_.size() < n + 16) {
            memory_.resize(n + 16);
        }
        next_ = memory_.data();
        next_ += (64 - ((uintptr_t) next_ & 63)) / sizeof(float) % 16;
    }
    float * take(int64_t n) {
        float * p = next_;
        next_ += round_up(n, 16);
        return p;
    }

private:
    static std::vector<float> & buffer() {
        thread_local std::vector<float> memory;
        return memory;
    }
    std::vector<float> & memory_;
    float *              next_;
};

constexpr int64_t kAhead = 16;  // rows fetched ahead of their use

// Rows of a tile are far apart and too short for the hardware prefetcher.
template <bool kToWrite>
inline void prefetch(int64_t D, const float * x) {
    for (int64_t i = 0; i < D; i += 16) {
        __builtin_prefetch(x + i, kToWrite);
    }
}

// out [rows x padded] = factor * x [rows x D, ld], the padding zero.
inline void pack(
    int64_t rows, int64_t D, int64_t padded, const float * x, int64_t ld, float factor, float * out
) {
    for (int64_t r = 0; r < rows; ++r) {
        prefetch<false>(D, x + (r + kAhead) * ld);
        each(D, [&](int64_t i, auto k) {
            store(out + r * padded + i, load(x + r * ld + i, k) * factor);
        });
    }
}

// out [D x padded] = x [rows x D, ld] transposed, the padding zero.
inline void
pack_transposed(int64_t rows, int64_t D, int64_t padded, const float * x, int64_t ld, float * out) {
    for (int64_t r = 0; r < padded; r += kLanes) {
        for (int i = 0; i < kLanes; ++i) {
            prefetch<false>(D, x + (r + i + kAhead) * ld);
        }
        each(D, [&](int64_t d, auto k) {
            Vec square[kLanes];
            for (int i = 0; i < kLanes; ++i) {
                square[i] = r + i < rows ? load(x + (r + i) * ld + d, k) : Vec{};
            }
            transpose(square);
            for (int i = 0; i < kLanes; ++i) {
                store(out + (d + i) * padded + r, square[i]);
            }
        });
    }
}

// x [rows x D, ld] = packed [rows x padded]
inline void
unpack(int64_t rows, int64_t D, int64_t padded, const float * packed, float * x, int64_t ld) {
    for (int64_t r = 0; r < rows; ++r) {
        prefetch<true>(D, x + (r + kAhead) * ld);
        std::memcpy(x + r * ld, packed + r * padded, (size_t) D * sizeof(float));
    }
}

}  // namespace gt::cpu
