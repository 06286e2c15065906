// ggml-train/cuda/activation.cuh — GELU (tanh and erf) and SwiGLU, both ways; a thread per element.
#pragma once

#include "ggml-train/cuda/bf16.cuh"

namespace gt::cuda {

constexpr float kTwoRootTwoOverPi = 1.59576912160573f;  // 2 sqrt(2/pi)
constexpr float kCube             = 0.044715f;
constexpr float kRootHalf         = 0.70710678118655f;  // sqrt(1/2)
constexpr float kInverseRootTwoPi = 0.39894228040143f;  // 1 / sqrt(2 pi)

__device__ inline float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

// x * Phi(x); (1 + tanh(u)) / 2 = sigmoid(2u).
template <Gelu kKind>
__device__ float gelu_value(float x) {
    if constexpr (kKind == Gelu::erf) {
        return 0.5f * x * (1.0f + erff(x * kRootHalf));
    } else {
        return x * sigmoid(kTwoRootTwoOverPi * x * (1.0f + kCube * x * x));
    }
}

template <Gelu kKind>
__device__ float gelu_slope(float x) {
    if constexpr (kKind == Gelu::erf) {
        return 0.5f * (1.0f + erff(x * kRootHalf)) + x * kInverseRootTwoPi * expf(-0.5f * x * x);
    } else {
        const float s = sigmoid(kTwoRootTwoOverPi * x * (1.0f + kCube * x * x));
        return s + s * (1.0f - s) * x * (kTwoRootTwoOverPi * (1.0f + 3.0f * kCube * x * x));
    }
}

template <Gelu kKind, class T>
__global__ void __launch_bounds__(kThreads) gelu_kernel(int64_t n, const float * x, T * y) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        store(y + i, gelu_value<kKind>(x[i]));
    }
}

template <Gelu kKind, class T>
__global__ void __launch_bounds__(kThreads)
    gelu_back_kernel(int64_t n, const float * x, const float * dy, T * dx) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        store(dx + i, dy[i] * gelu_slope<kKind>(x[i]));
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(int64_t n, const float * gate, const float * up, T * y) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        store(y + i, gate[i] * sigmoid(gate[i]) * up[i]);
    }
}

__global__ void __launch_bounds__(kThreads) swiglu_back_kernel(
    int64_t n, const float * gate, const float * up, const float * dy, float * dgate, float * dup
) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        const float g = gate[i], u = up[i], d = dy[i];  // read before dgate or dup, one of them dy
        const float s = sigmoid(g);
        dgate[i]      = d * u * s * (1.0f + g * (1.0f - s));
        dup[i]        = d * g * s;
    }
}

}  // namespace gt::cuda
