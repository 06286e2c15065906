// ggml-train/cuda/bf16.cuh — arrays of floats, or of the same rounded to bf16, on every GPU. Kernels compute in F32;
// they read and write four elements at a time where addresses allow it.
#pragma once

#include "ggml-train/cuda/device.cuh"
#include "ggml-train/cuda/kernels.h"

#include <type_traits>

namespace gt::cuda {

// To the nearest, ties to even; a NaN stays one.
__device__ inline uint16_t to_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    const bool     nan  = (bits & 0x7fffffffu) > 0x7f800000u;
    return uint16_t((nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__device__ inline void store(float * to, float x) {
    *to = x;
}
__device__ inline void store(uint16_t * to, float x) {
    *to = to_bf16(x);
}

__device__ inline float value_of(float x) {
    return x;
}
__device__ inline float value_of(uint16_t x) {
    return __uint_as_float(unsigned(x) << 16);
}

template <class T>
struct alignas(4 * sizeof(T)) Four {
    T x[4];
};

template <class T>
__device__ bool is_whole(const T * x, int64_t i, int64_t n) {
    return i + 4 <= n && reinterpret_cast<uintptr_t>(x + i) % sizeof(Four<T>) == 0;
}

// Elements [i, i + 4) of n; zeros beyond the end.
template <class T>
__device__ Four<float> load_four(const T * x, int64_t i, int64_t n) {
    Four<T> from = {};
    if (is_whole(x, i, n)) {
        from = *reinterpret_cast<const Four<T> *>(x + i);
    } else {
        for (int j = 0; j < 4; ++j) {
            from.x[j] = i + j < n ? x[i + j] : T(0);
        }
    }
    Four<float> to;
    for (int j = 0; j < 4; ++j) {
        to.x[j] = value_of(from.x[j]);
    }
    return to;
}

template <class T>
__device__ void store_four(T * y, int64_t i, int64_t n, const Four<float> & from) {
    if (is_whole(y, i, n)) {
        Four<T> to;
        for (int j = 0; j < 4; ++j) {
            store(to.x + j, from.x[j]);
        }
        *reinterpret_cast<Four<T> *>(y + i) = to;
        return;
    }
    for (int j = 0; j < 4 && i + j < n; ++j) {
        store(y + i + j, from.x[j]);
    }
}

// Blocks of kernels in which a thread has four elements at a time; and its first ones, and the step to the next.
inline dim3 blocks_of_fours(int64_t n) {
    return blocks_for(n, 4 * kThreads);
}
__device__ inline int64_t first_four() {
    return 4 * (int64_t(blockIdx.x) * kThreads + threadIdx.x);
}
__device__ inline int64_t step_of_fours() {
    return 4 * int64_t(gridDim.x) * kThreads;
}

// Calls fn with a null pointer of the type that arrays have.
template <class F>
void with_type(bool bf16, const F & fn) {
    bf16 ? fn(static_cast<uint16_t *>(nullptr)) : fn(static_cast<float *>(nullptr));
}

// The array as its type. REQUIRES: it has this type.
template <class T, class Array>
auto typed(const Array & array) {
    GT_CHECK(array.bf16 == (sizeof(T) == 2), "arrays of another type than the kernel's");
    return static_cast<std::conditional_t<std::is_same_v<Array, Out>, T, const T> *>(array.at);
}

template <class X, class Y>
__global__ void __launch_bounds__(kThreads) convert_kernel(int64_t n, const X * x, Y * y) {
    for (int64_t i = first_four(); i < n; i += step_of_fours()) {
        store_four(y, i, n, load_four(x, i, n));
    }
}

}  // namespace gt::cuda
