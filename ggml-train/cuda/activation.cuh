// ggml-train/cuda/activation.cuh — GELU (tanh and erf) and SwiGLU, both ways; four elements a thread.
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
__global__ void __launch_bounds__(kThreads) gelu_kernel(int64_t n, const T * x, T * y) {
    for (int64_t i = first_four(); i < n; i += step_of_fours()) {
        Four<float> v = load_four(x, i, n);
        for (float & one : v.x) {
            one = gelu_value<kKind>(one);
        }
        store_four(y, i, n, v);
    }
}

template <Gelu kKind, class T>
__global__ void __launch_bounds__(kThreads)
    gelu_back_kernel(int64_t n, const T * x, const T * dy, T * dx) {
    for (int64_t i = first_four(); i < n; i += step_of_fours()) {
        const Four<float> v = load_four(x, i, n);
        Four<float>       d = load_four(dy, i, n);
        for (int j = 0; j < 4; ++j) {
            d.x[j] *= gelu_slope<kKind>(v.x[j]);
        }
        store_four(dx, i, n, d);
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(int64_t n, const T * gate, const T * up, T * y) {
    for (int64_t i = first_four(); i < n; i += step_of_fours()) {
        const Four<float> g = load_four(gate, i, n);
        Four<float>       u = load_four(up, i, n);
        for (int j = 0; j < 4; ++j) {
            u.x[j] = g.x[j] * sigmoid(g.x[j]) * u.x[j];
        }
        store_four(y, i, n, u);
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_back_kernel(int64_t n, const T * gate, const T * up, const T * dy, T * dgate, T * dup) {
    for (int64_t i = first_four(); i < n; i += step_of_fours()) {
        // read before dgate or dup, one of them dy
        const Four<float> g = load_four(gate, i, n), u = load_four(up, i, n),
                          d = load_four(dy, i, n);
        Four<float> to_gate, to_up;
        for (int j = 0; j < 4; ++j) {
            const float s = sigmoid(g.x[j]);
            to_gate.x[j]  = d.x[j] * u.x[j] * s * (1.0f + g.x[j] * (1.0f - s));
            to_up.x[j]    = d.x[j] * g.x[j] * s;
        }
        store_four(dgate, i, n, to_gate);
        store_four(dup, i, n, to_up);
    }
}

}  // namespace gt::cuda
