// ggml-train/cuda/squares.cuh — a sum of squares in the order of optim/math/squares.cpp.
#pragma once

#include "ggml-train/cuda/exact.cuh"

namespace gt::cuda {

constexpr int kSums = 16;  // of squares, side by side

// For sixteen lanes: the sum of the squares of value(begin) to value(end - 1), in each of them. Element i
// belongs to sum i % 16, and the sums are added in their order. All lanes of the warp call it.
template <class Value>
__device__ inline double piece_squares(int64_t begin, int64_t end, Value value) {
    const int j   = threadIdx.x % kSums;
    double    sum = 0.0, total = 0.0;
    for (int64_t i = begin + j; i < end; i += kSums) {
        const double x = double(value(i));
        sum            = add(sum, mul(x, x));
    }
    for (int k = 0; k < kSums; ++k) {
        total = add(total, __shfl_sync(kAll, sum, int(threadIdx.x % kWarp / kSums * kSums) + k));
    }
    return total;
}

}  // namespace gt::cuda
