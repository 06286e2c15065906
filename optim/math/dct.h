// optim/math/dct.h — orthonormal DCT-II of a chunk, in a fixed order of operations.
//
// The transform is split by symmetry: DCT-II(n) into DCT-II(n/2) and DCT-IV(n/2), DCT-IV(n) into
// rotations and two DCT-II(n/2), down to odd sizes, which are table sums: 705 operations for n = 64
// instead of 8128. Columns are processed side by side, one per lane, so scalar, AVX2 and AVX-512 code
// give the same bits. Tables are computed by cos_pi.
#pragma once

#include "ggml-train/base/fixed-math.h"
#include "optim/math/lanes.h"

#include <vector>

namespace gt {

inline constexpr float kHalfRoot = 0.70710678118654752440f;  // sqrt(1/2)

class Dct {
public:
    explicit Dct(int64_t n);

    int64_t size() const { return n_; }

    // Transforms `width` columns (a multiple of kRowLanes) of n rows, from memory with `from_stride`
    // floats between rows to memory with `to_stride`; both may be the same memory.
    // Up to a factor: multiply the result by scale() to get orthonormal coefficients.
    void forward(
        const float * from, int64_t from_stride, float * to, int64_t to_stride, int64_t width
    ) const;

    // The inverse, up to the same factor: multiply the coefficients by scale() first.
    void inverse(
        const float * from, int64_t from_stride, float * to, int64_t to_stride, int64_t width
    ) const;

    float scale() const { return scale_; }

    // Tables for one size in the recursion; see dct.cpp.
    struct Level {
        int64_t            n = 1;
        std::vector<float> rotation;   // even n: cos and sin of pi (2i + 1) / 4n, i < n/2
        std::vector<float> even, odd;  // odd n: DCT-II on sums and on differences of mirrored rows
        std::vector<float> even_t, odd_t;  // their transposes
        std::vector<float> fourth;         // odd n: DCT-IV, n x n
    };

private:
    int64_t            n_;
    float              scale_;
    std::vector<Level> levels_;  // n, n/2, n/4, ... down to an odd size
};

}  // namespace gt
