// ggml-train/cuda/bf16.cuh — floats rounded to bf16, on every GPU.
#pragma once

#include "ggml-train/cuda/device.cuh"
#include "ggml-train/cuda/kernels.h"

namespace gt::cuda {

// To the nearest, ties to even; a NaN stays one.
__device__ inline uint16_t to_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    const bool     nan  = (bits & 0x7fffffffu) > 0x7f800000u;
    return uint16_t((nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// A kernel writes floats as they are, or rounded.
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

// Calls fn with the pointer of the type that it has.
template <class F>
void with_type(Out out, const F & fn) {
    out.bf16 ? fn(static_cast<uint16_t *>(out.to)) : fn(static_cast<float *>(out.to));
}

}  // namespace gt::cuda
