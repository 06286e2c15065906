// ggml-train/cuda/muon.h — the muon rule on the device, with the bits of optim/rules/muon.cpp.
//
// All hosts must compute the same bits: see demo.h. Products are chains of fused multiply-adds, as in
// optim/math/fixed-gemm.h; nothing else is fused.
#pragma once

#include "ggml-train/cuda/demo.h"

namespace gt::cuda {

// x = scale * u; with a momentum: m = momentum * m + x, x = x + momentum * m. m may be null if it is 0.
void nesterov(
    Stream s, int64_t n, float scale, float momentum, const float * u, float * m, float * x
);

// The weights move by the sign of such an x: p = p * keep - step * sign(x).
struct SignStep {
    float scale = 1.0f, momentum = 0.0f, keep = 1.0f, step = 0.0f;
};
void nesterov_sign(
    Stream s, int64_t n, const SignStep & step, const float * u, float * m, float * p
);

// Of the memory below: sums of squares, and what else comes before the matrices, which are then aligned.
inline int64_t orthogonalise_doubles(int64_t n) {
    return ((n + kSquaresPiece - 1) / kSquaresPiece + 2) / 2 * 2;
}

// Memory that orthogonalise needs beside the matrix.
inline size_t orthogonalise_bytes(int64_t rows, int64_t cols) {
    const int64_t n = rows * cols, side = rows < cols ? rows : cols;
    return static_cast<size_t>(orthogonalise_doubles(n)) * sizeof(double) +
           static_cast<size_t>(n + 2 * side * side) * sizeof(float);
}

// Approximates the orthogonal matrix nearest to x [cols, rows] by n_steps of Newton-Schulz. Returns the
// result, in x or in room; both are overwritten. REQUIRES: room has orthogonalise_bytes.
float * orthogonalise(Stream s, int64_t rows, int64_t cols, int n_steps, float * x, void * room);

}  // namespace gt::cuda
