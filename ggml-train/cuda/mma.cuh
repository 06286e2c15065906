// ggml-train/cuda/mma.cuh — products on tensor cores (sm_80 and later): tiles of bf16, sums in F32.
//
// A word is two bf16, the lower index in the lower half. Lane l of a warp holds, with g = l / 4, t = l % 4:
//   A [16 x 16]  a[0]: row g, columns 2t, 2t+1; a[1]: row g+8; a[2], a[3]: the same, columns 2t+8, 2t+9
//   B [16 x 8]   b[0]: rows 2t, 2t+1 of column g; b[1]: rows 2t+8, 2t+9
//   C [16 x 8]   c[0], c[1]: row g, columns 2t, 2t+1; c[2], c[3]: row g+8
// So the C of two products side by side, rounded, is the A of the next one. All lanes must take part.
// Under the emulator the four functions are those of tests/cuda/emu-matrix.h.
#pragma once

#include "ggml-train/cuda/device.cuh"

#ifndef __CUDACC__
#include "emu-matrix.h"
#endif

namespace gt::cuda {

struct alignas(16) Words4 {
    unsigned word[4];
};

#ifdef __CUDACC__

// Two floats rounded to the nearest bf16.
__device__ inline unsigned pack_bf16(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// Four matrices of 8 x 8 bf16 in shared memory. Lane l names row l % 8 of matrix l / 8, 16 bytes that
// begin at a multiple of 16; it gets words t of row g of each matrix.
__device__ inline void load_matrices(unsigned (&to)[4], const unsigned * row) {
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

// The same, each matrix transposed.
__device__ inline void load_transposed(unsigned (&to)[4], const unsigned * row) {
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

// C += A B
__device__ inline void
multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif

// ---- tiles in shared memory: rows of DP bf16, 16 bytes apart, so that no two rows of a matrix meet in a
// ---- bank of memory ----------------------------------------------------------------------------------

constexpr int kMmaThreads = 128;  // of a block

template <int DP>
constexpr int kRowWords = (DP + 8) / 2;

// Rows [first, first + N) of a matrix with `ld` bf16 from row to row; zeros beyond T rows and beyond D columns.
// REQUIRES: D, ld and the offset of `from` are multiples of eight bf16.
template <int DP, int N>
__device__ inline void
load_tile(const uint16_t * from, int64_t ld, int first, int T, int D, unsigned * to) {
    constexpr int kEights = DP / 8;  // of a row
    static_assert(N * kEights % kMmaThreads == 0);
#ifdef __CUDACC__
#pragma unroll 2  // loads on their way at once; more would not fit the registers
#endif
    for (int i = 0; i < N * kEights / kMmaThreads; ++i) {
        const int e = i * kMmaThreads + int(threadIdx.x), r = e / kEights, d = e % kEights * 8;
        Words4    v = {};
        if (first + r < T && d < D) {
            v = *reinterpret_cast<const Words4 *>(from + (first + r) * ld + d);
        }
        *reinterpret_cast<Words4 *>(to + r * kRowWords<DP> + d / 2) = v;
    }
}

// A: rows [row, row + 16), columns [column, column + 16).
template <int DP>
__device__ inline void load_a(unsigned (&a)[4], const unsigned * tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_matrices(a, tile + (row + lane % 16) * kRowWords<DP> + (column + lane / 16 * 8) / 2);
}

// A transposed: rows [row, row + 16) of A are columns of the tile, columns [column, column + 16) rows.
template <int DP>
__device__ inline void
load_a_transposed(unsigned (&a)[4], const unsigned * tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_transposed(
        a, tile + (column + lane % 8 + lane / 16 * 8) * kRowWords<DP> + (row + lane / 8 % 2 * 8) / 2
    );
}

// Two B side by side, columns [column, column + 16) and rows [row, row + 16) of B: b[0], b[1] and b[2],
// b[3]. The tile has the columns of B as its rows.
template <int DP>
__device__ inline void load_b(unsigned (&b)[4], const unsigned * tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_matrices(
        b, tile + (column + lane % 8 + lane / 16 * 8) * kRowWords<DP> + (row + lane / 8 % 2 * 8) / 2
    );
}

// The same of a tile that has the rows of B as its rows.
template <int DP>
__device__ inline void
load_b_transposed(unsigned (&b)[4], const unsigned * tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_transposed(b, tile + (row + lane % 16) * kRowWords<DP> + (column + lane / 16 * 8) / 2);
}

}  // namespace gt::cuda
