#include "optim/math/squares.h"

#include "ggml-train/cuda/demo.h"

#include <algorithm>

namespace gt {

// Element i is added to sum i % 16, whatever the SIMD width.
static double sum_of_piece(const float * x, int64_t n) {
    double  sums[16] = {};
    int64_t i        = 0;
    for (; i + 16 <= n; i += 16) {
        for (int j = 0; j < 16; ++j) {
            sums[j] = sums[j] + static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
        }
    }
    for (int j = 0; i + j < n; ++j) {
        sums[j] = sums[j] + static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
    }
    double total = 0.0;
    for (const double sum : sums) {
        total = total + sum;
    }
    return total;
}

double sum_of_squares(const float * x, int64_t n) {
    double total = 0.0;
    for (int64_t i = 0; i < n; i += cuda::kSquaresPiece) {
        total = total + sum_of_piece(x + i, std::min(cuda::kSquaresPiece, n - i));
    }
    return total;
}

}  // namespace gt
