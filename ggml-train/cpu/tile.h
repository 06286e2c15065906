// ggml-train/cpu/tile.h — small matrix products of tiles that lie in the cache, as attention needs.
//
// The right-hand matrix and the result are row-major with rows padded to whole registers; the
// left-hand one is read an element at a time, so it may be transposed or unpadded. Larger
// products go to the library: gemm.cpp.
#pragma once

#include "ggml-train/cpu/simd.h"

namespace gt::cpu {

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
inline void tile_kernel(int64_t K, View a, const float * b, int64_t ldb, float * c, int64_t ldc,
                        bool add) {
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
inline void tile_columns(int64_t n, int64_t K, View a, const float * b, int64_t ldb, float * c,
                         int64_t ldc, bool add) {
    int64_t       j    = 0;
    const int64_t step = kTileCols * kLanes;
    for (; j + step <= n; j += step) {
        tile_kernel<R, kTileCols>(K, a, b + j, ldb, c + j, ldc, add);
    }
    switch ((n - j) / kLanes) {
#ifdef __AVX512F__
        case 3: tile_kernel<R, 3>(K, a, b + j, ldb, c + j, ldc, add); break;
        case 2: tile_kernel<R, 2>(K, a, b + j, ldb, c + j, ldc, add); break;
#endif
        case 1: tile_kernel<R, 1>(K, a, b + j, ldb, c + j, ldc, add); break;
        default: break;
    }
}

// R rows of the result, 1 <= R <= kTileRows; n is a multiple of kLanes.
inline void tile_rows(int R, int64_t n, int64_t K, View a, const float * b, int64_t ldb, float * c,
                      int64_t ldc, bool add) {
    static_assert(kTileRows == 6);
    switch (R) {
        case 6: tile_columns<6>(n, K, a, b, ldb, c, ldc, add); break;
        case 5: tile_columns<5>(n, K, a, b, ldb, c, ldc, add); break;
        case 4: tile_columns<4>(n, K, a, b, ldb, c, ldc, add); break;
        case 3: tile_columns<3>(n, K, a, b, ldb, c, ldc, add); break;
        case 2: tile_columns<2>(n, K, a, b, ldb, c, ldc, add); break;
        case 1: tile_columns<1>(n, K, a, b, ldb, c, ldc, add); break;
        default: break;
    }
}

}  // namespace gt::cpu
