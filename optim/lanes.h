// optim/lanes.h — a vector of floats as wide as the machine's, for arithmetic on independent columns.
//
// One lane never meets another, and each lane computes the same operations in the same order as
// scalar code would: results do not depend on the width. Contraction is off in this folder.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace gt {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// The same at any address.
using LooseLanes =
    float __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

inline Lanes load(const float * at) {
    return *reinterpret_cast<const LooseLanes *>(at);
}

inline void store(float * at, Lanes x) {
    *reinterpret_cast<LooseLanes *>(at) = x;
}

// Buffers have rows of a multiple of this many floats, whatever the width, and are aligned to it.
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
