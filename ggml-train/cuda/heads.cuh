// ggml-train/cuda/heads.cuh — what both kernels of attention know of its heads.
#pragma once

#include "ggml-train/cuda/device.cuh"
#include "ggml-train/cuda/kernels.h"

#include <cmath>
#include <utility>

namespace gt::cuda {

constexpr float kMasked = -1e30f;  // the score of a key that is not seen

// Where a head of a token starts in qkv, and from token to token.
struct Heads {
    __device__ explicit Heads(const Attention & a) : H(a.H), Hkv(a.Hkv), D(a.D), T(a.T) {}
    __device__ int64_t ld() const { return (H + 2 * Hkv) * D; }
    __device__ int64_t q(int64_t h) const { return h * D; }
    __device__ int64_t k(int64_t h) const { return (H + h) * D; }
    __device__ int64_t v(int64_t h) const { return (H + Hkv + h) * D; }
    int64_t            H, Hkv, D, T;
};

inline float scale_of(const Attention & a) {
    return 1.0f / std::sqrt(static_cast<float>(a.D));
}

// Calls fn with the head size in units of 32, as a constant.
template <class F>
void with_head(const Attention & a, const F & fn) {
    if (a.D < 1 || a.D > kMaxHead) {
        throw Error(format(
            "CUDA: attention: heads of %lld, at most %lld are supported",
            static_cast<long long>(a.D), static_cast<long long>(kMaxHead)
        ));
    }
    switch ((a.D + 31) / 32) {
        case 1:
            return fn(std::integral_constant<int, 1>());
        case 2:
            return fn(std::integral_constant<int, 2>());
        case 3:
            return fn(std::integral_constant<int, 3>());
        default:
            return fn(std::integral_constant<int, 4>());
    }
}

// delta [B x H x T]: the sum over each head of o * d_o, of one type.
void attention_delta(Stream s, const Attention & a, In o, In d_o, float * delta);

}  // namespace gt::cuda
