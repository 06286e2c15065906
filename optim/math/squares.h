// optim/math/squares.h — a sum of squares in a fixed order; the kernel sums_of_squares of
// ggml-train/cuda/demo.h computes the same bits.
#pragma once

#include <cstdint>

namespace gt {

// The sum of the sums of pieces of kSquaresPiece elements, in their order.
double sum_of_squares(const float * x, int64_t n);

}  // namespace gt
