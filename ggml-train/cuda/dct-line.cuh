// ggml-train/cuda/dct-line.cuh — a DCT of N elements, a power of two, in the registers of a thread: the operations
// of optim/math/dct-lanes.h in their order, with the factors in the code.
#pragma once

#include "ggml-train/base/fixed-math.h"
#include "ggml-train/cuda/exact.cuh"

#include <utility>

namespace gt::cuda {

// Calls fn with 0 to N - 1 as constants: arrays that they index stay in registers.
template <int N, class F>
__device__ inline void unrolled(const F & fn) {
    [&]<int... I>(std::integer_sequence<int, I...>) {
        (fn(std::integral_constant<int, I>()), ...);
    }
    (std::make_integer_sequence<int, N>());
}

// cos(pi P / Q): nvcc lets kernels use the variable, not the function.
template <int P, int Q>
inline constexpr float kCosine = float(cos_pi(P, Q));

// second: DCT-II without its factors; third: its transpose; fourth: DCT-IV.
template <int N>
struct DctLine {
    static constexpr int H = N / 2;

    __device__ static void fourth(float (&x)[N]) {
        float a[H], b[H];
        unrolled<H>([&](auto at) {
            constexpr int   i   = decltype(at)::value;
            constexpr float c   = kCosine<2 * i + 1, 4 * N>;
            constexpr float s   = kCosine<2 * N - 2 * i - 1, 4 * N>;
            const float     low = x[i], high = x[N - 1 - i];
            a[i] = add(mul(low, c), mul(high, s));
            b[i] = i % 2 == 0 ? sub(mul(high, c), mul(low, s)) : sub(mul(low, s), mul(high, c));
        });
        DctLine<H>::second(a);
        DctLine<H>::second(b);
        x[0]     = a[0];
        x[N - 1] = -b[0];
        unrolled<H - 1>([&](auto at) {
            constexpr int k = decltype(at)::value + 1;
            x[2 * k]        = add(a[k], b[H - k]);
            x[2 * k - 1]    = sub(a[k], b[H - k]);
        });
    }

    __device__ static void second(float (&x)[N]) {
        float s[H], d[H];
        unrolled<H>([&](auto at) {
            constexpr int i = decltype(at)::value;
            s[i]            = add(x[i], x[N - 1 - i]);
            d[i]            = sub(x[i], x[N - 1 - i]);
        });
        DctLine<H>::second(s);
        DctLine<H>::fourth(d);
        unrolled<H>([&](auto at) {
            constexpr int k = decltype(at)::value;
            x[2 * k]        = s[k];
            x[2 * k + 1]    = d[k];
        });
    }

    __device__ static void third(float (&x)[N]) {
        float s[H], d[H];
        unrolled<H>([&](auto at) {
            constexpr int k = decltype(at)::value;
            s[k]            = x[2 * k];
            d[k]            = x[2 * k + 1];
        });
        DctLine<H>::third(s);
        DctLine<H>::fourth(d);
        unrolled<H>([&](auto at) {
            constexpr int i = decltype(at)::value;
            x[i]            = add(s[i], d[i]);
            x[N - 1 - i]    = sub(s[i], d[i]);
        });
    }
};

template <>
struct DctLine<1> {
    __device__ static void second(float (&)[1]) {}
    __device__ static void third(float (&)[1]) {}
    __device__ static void fourth(float (&x)[1]) { x[0] = mul(x[0], kCosine<1, 4>); }
};

}  // namespace gt::cuda
