// tests/cuda/emu-matrix.h — the functions of cuda/mma.cuh for the emulator: what a warp's tensor cores do.
#pragma once

#include "cuda-emu.h"

namespace gt::cuda {

inline unsigned bf16_bits(float x) {
    unsigned u;
    memcpy(&u, &x, sizeof u);
    return x != x ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1)) >> 16;  // to nearest, ties to even
}

inline unsigned pack_bf16(float low, float high) {
    return bf16_bits(low) | bf16_bits(high) << 16;
}

// The lanes' rows are read here, where sanitizers see it, and exchanged by the emulator.
inline void emulate_load(unsigned (&to)[4], const unsigned * row, cuda_emu::WarpOp op, int line) {
    GT_CHECK(reinterpret_cast<uintptr_t>(row) % 16 == 0, "ldmatrix: a row that is not aligned");
    cuda_emu::MatrixLane lane = {{row[0], row[1], row[2], row[3]}, to};
    cuda_emu::warp(op, 0xffffffffu, reinterpret_cast<uint64_t>(&lane), 0, line);
}

#define load_matrices(to, row) emulate_load(to, row, cuda_emu::WarpOp::matrices, __LINE__)
#define load_transposed(to, row) emulate_load(to, row, cuda_emu::WarpOp::transposed, __LINE__)

inline void
emulate_product(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int line) {
    cuda_emu::ProductLane lane = {{a[0], a[1], a[2], a[3]}, {b0, b1}, c};
    cuda_emu::warp(
        cuda_emu::WarpOp::product, 0xffffffffu, reinterpret_cast<uint64_t>(&lane), 0, line
    );
}

#define multiply_add(c, a, b0, b1) emulate_product(c, a, b0, b1, __LINE__)

}  // namespace gt::cuda
