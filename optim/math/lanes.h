// optim/math/lanes.h — a SIMD vector of floats for arithmetic on independent columns.
//
// Lanes never mix, and each lane computes the operations of scalar code in the same order: results do
// not depend on the width. Contraction is off in optim/.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace gt {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// The same at any address. Clang lowers the alignment for a typedef only.
typedef float LooseLanes
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

inline Lanes load(const float * at) {
    return *reinterpret_cast<const LooseLanes *>(at);
}

inline void store(float * at, Lanes x) {
    *reinterpret_cast<LooseLanes *>(at) = x;
}

// a * b + c, rounded once.
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
#if defined(__AVX512F__)
    return reinterpret_cast<Lanes>(_mm512_fmadd_ps(
        reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)
    ));
#elif defined(__AVX__) && defined(__FMA__)
    return reinterpret_cast<Lanes>(_mm256_fmadd_ps(
        reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)
    ));
#else
    for (int i = 0; i < kLanes; ++i) {
        c[i] = std::fma(a[i], b[i], c[i]);
    }
    return c;
#endif
}

// Rows of buffers are padded to a multiple of this many floats, whatever the SIMD width.
constexpr int64_t kRowLanes = 16;

inline int64_t padded(int64_t n) {
    return (n + kRowLanes - 1) / kRowLanes * kRowLanes;
}

// An uninitialised, aligned array of floats.
class LaneBuffer {
public:
    LaneBuffer() = default;
    explicit LaneBuffer(int64_t n)
        : data_(static_cast<float *>(std::aligned_alloc(64, padded(n) * sizeof(float)))) {}

    float * data() const { return data_.get(); }

private:
    struct Free {
        void operator()(float * p) const { std::free(p); }
    };
    std::unique_ptr<float, Free> data_;
};

}  // namespace gt
