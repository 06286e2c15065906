// ggml-train/cpu/simd.h — one register of floats, and the few functions the kernels need on it.
//
// Uses the vector extensions of GCC and Clang: 16 lanes with AVX-512, otherwise 8; correct on any CPU.
// Internal to this folder: others include kernels.h.
#pragma once

#include "ggml-train/cpu/kernels.h"

#include <algorithm>
#include <cstring>
#include <utility>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace gt::cpu {

#ifdef __AVX512F__
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

typedef float   Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t VecInt __attribute__((vector_size(kLanes * 4)));

inline int64_t round_up(int64_t n, int64_t grain) {
    return (n + grain - 1) / grain * grain;
}

// ---- loads and stores: a full register, or the first k.n lanes of one ------------------------------

struct Full {};
struct Tail {
    int n;  // 1 .. kLanes - 1
};

inline Vec splat(float x) {
    return x - Vec{};
}  // exact for -0 too, so no instruction is spent

inline Vec load(const float * p, Full = {}) {
    Vec v;
    std::memcpy(&v, p, sizeof(v));
    return v;
}
inline void store(float * p, Vec v, Full = {}) {
    std::memcpy(p, &v, sizeof(v));
}

// Lanes past the tail read as 0 and are not written; memory past it is not touched.
inline Vec load(const float * p, Tail k) {
#ifdef __AVX512F__
    return (Vec) _mm512_maskz_loadu_ps((__mmask16) ((1u << k.n) - 1), p);
#else
    Vec v{};
    std::memcpy(&v, p, (size_t) k.n * sizeof(float));
    return v;
#endif
}
inline void store(float * p, Vec v, Tail k) {
#ifdef __AVX512F__
    _mm512_mask_storeu_ps(p, (__mmask16) ((1u << k.n) - 1), (__m512) v);
#else
    std::memcpy(p, &v, (size_t) k.n * sizeof(float));
#endif
}

// Lane i takes lane kFrom(i) of a, or from kLanes on of b.
template <auto kFrom>
inline Vec shuffle(Vec a, Vec b) {
    return [&]<int... i>(std::integer_sequence<int, i...>) {
        return __builtin_shufflevector(a, b, kFrom(i)...);
    }
    (std::make_integer_sequence<int, kLanes>());
}

// 0, 1, 2, ...
inline VecInt lane_numbers() {
    return []<int... i>(std::integer_sequence<int, i...>) {
        return VecInt{i...};
    }
    (std::make_integer_sequence<int, kLanes>());
}

// v with the lanes past the tail replaced by `fill`.
inline Vec keep(Vec v, float, Full) {
    return v;
}
inline Vec keep(Vec v, float fill, Tail k) {
    return lane_numbers() < k.n ? v : splat(fill);
}

// Calls f(i, k) for i = 0, kLanes, ... below n: k is Full, at last perhaps Tail.
template <class F>
inline void each(int64_t n, F f) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        f(i, Full{});
    }
    if (i < n) {
        f(i, Tail{(int) (n - i)});
    }
}

// ---- across the lanes, in a fixed order ------------------------------------------------------------

inline Vec max(Vec a, Vec b) {
    return a > b ? a : b;
}  // b if either is NaN
inline Vec min(Vec a, Vec b) {
    return a < b ? a : b;
}

// Lane i takes lane i ^ kStep.
template <int kStep>
inline Vec swap_lanes(Vec v) {
    return shuffle<[](int i) { return i ^ kStep; }>(v, v);
}

template <int kStep = kLanes / 2>
inline float sum(Vec v) {
    if constexpr (kStep == 0) {
        return v[0];
    } else {
        return sum<kStep / 2>(v + swap_lanes<kStep>(v));
    }
}

template <int kStep = kLanes / 2>
inline float max(Vec v) {
    if constexpr (kStep == 0) {
        return v[0];
    } else {
        return max<kStep / 2>(max(v, swap_lanes<kStep>(v)));
    }
}

// Transposes a square of registers in place: halves trade places, then halves of halves, ...
template <int kStep = kLanes / 2>
inline void transpose(Vec (&v)[kLanes]) {
    if constexpr (kStep > 0) {
        constexpr auto low  = [](int i) { return i & kStep ? i - kStep + kLanes : i; };
        constexpr auto high = [](int i) { return i & kStep ? i + kLanes : i + kStep; };
        for (int i = 0; i < kLanes; ++i) {
            if ((i & kStep) == 0) {
                const Vec a = v[i], b = v[i + kStep];
                v[i]         = shuffle<low>(a, b);
                v[i + kStep] = shuffle<high>(a, b);
            }
        }
        transpose<kStep / 2>(v);
    }
}

// The sum over i < n of f(i, k), a register. Four sums are under way at a time, so
// that no addition waits for the one before it.
template <class F>
inline float sum_each(int64_t n, F f) {
    Vec     acc[4] = {};
    int64_t i      = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
        for (int u = 0; u < 4; ++u) {
            acc[u] += f(i + u * kLanes, Full{});
        }
    }
    each(n - i, [&](int64_t j, auto k) { acc[0] += keep(f(i + j, k), 0.0f, k); });
    return sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

// Two such sums at once.
struct Two {
    Vec a, b;
};
struct TwoSums {
    float a, b;
};
template <class F>
inline TwoSums sum_two_each(int64_t n, F f) {
    Two     acc[2] = {};
    int64_t i      = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
        for (int u = 0; u < 2; ++u) {
            const Two v = f(i + u * kLanes, Full{});
            acc[u].a += v.a;
            acc[u].b += v.b;
        }
    }
    each(n - i, [&](int64_t j, auto k) {
        const Two v = f(i + j, k);
        acc[0].a += keep(v.a, 0.0f, k);
        acc[0].b += keep(v.b, 0.0f, k);
    });
    return {sum(acc[0].a + acc[1].a), sum(acc[0].b + acc[1].b)};
}

// ---- elementary functions -------------------------------------------------------------------------

// e^x to 1e-7 relative; at most e^88.37; 0 where it would be denormal, which makes some CPUs slow;
// NaN stays NaN.
inline Vec exp(Vec x) {
    x = min(splat(88.37f), x);

    // x = n ln2 + r, |r| <= ln2 / 2; adding 1.5 * 2^23 rounds to an integer, left in the low bits
    const Vec shifted = x * 1.44269504088896341f + 12582912.0f;
    const Vec n       = shifted - 12582912.0f;
    Vec       r       = x - n * 0.693359375f;  // ln2 in two parts
    r                 = r - n * -2.12194440e-4f;

    Vec q = splat(1.9875691500e-4f);  // Cephes' expf
    q     = q * r + 1.3981999507e-3f;
    q     = q * r + 8.3334519073e-3f;
    q     = q * r + 4.1665795894e-2f;
    q     = q * r + 1.6666665459e-1f;
    q     = q * r + 5.0000001201e-1f;
    q     = q * (r * r) + r + 1.0f;

    const VecInt power = ((VecInt) shifted + 127) << 23;  // 2^n
    return x < -87.33f ? Vec{} : q * (Vec) power;
}

// 1 / (1 + e^-x)
inline Vec sigmoid(Vec x) {
    return 1.0f / (1.0f + exp(-x));
}

// The normal distribution at x: `below` the share below x, `density` its derivative.
// erfc(z) = exp(-z^2) t q(t), t = 1 / (1 + 0.3275911 z) for z >= 0, as Abramowitz and Stegun 7.1.26
// but with three more terms: 6e-8 relative.
struct Normal {
    Vec below, density;
};
inline Normal normal(Vec x) {
    const Vec z = (x < 0.0f ? -x : x) * 0.70710678118654752f;
    const Vec e = exp(-z * z);
    const Vec t = 1.0f / (1.0f + 0.3275911f * z);

    Vec q = splat(-0.14447299f);
    q     = q * t + 0.51100380f;
    q     = q * t - 0.43141953f;
    q     = q * t + 0.47775048f;
    q     = q * t + 0.011746557f;
    q     = q * t + 0.21032500f;
    q     = q * t + 0.17995809f;
    q     = q * t + 0.18510854f;

    const Vec tail = 0.5f * e * t * q;  // the share beyond |x|
    return {x < 0.0f ? tail : 1.0f - tail, e * 0.39894228040143268f};
}

}  // namespace gt::cpu
