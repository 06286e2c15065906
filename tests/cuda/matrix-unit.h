// tests/cuda/matrix-unit.h — ldmatrix and mma.sync of a warp: for the emulator and the PTX interpreter.
// Which lane holds which element is in ggml-train/cuda/mma.cuh; here it is written a second time, by element,
// from NVIDIA's "PTX ISA".
#pragma once

namespace cuda_emu {

// ldmatrix.x4: the row that a lane names, and the four words that it gets.
struct MatrixLane {
    unsigned   row[4];
    unsigned * to;
};

// mma.m16n8k16 of bf16: a lane's part of A and B, and of C, which changes.
struct ProductLane {
    unsigned a[4], b[2];
    float *  c;
};

void exchange_matrices(const MatrixLane * const (&lanes)[32], bool transposed);
void multiply_tiles(const ProductLane * const (&lanes)[32]);

}  // namespace cuda_emu
