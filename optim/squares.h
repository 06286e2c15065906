// optim/squares.h — a sum of squares in an order that no machine changes; on devices the kernel
// sums_of_squares of ggml-train/cuda/demo.h makes the same.
#pragma once

#include <cstdint>

namespace gt {

double sum_of_squares(const float * x, int64_t n);

}  // namespace gt
