// optim/math/fixed-gemm.h — matrix products with the same bits on every machine.
//
// Each sum runs over k in ascending order by fused multiply-adds; lanes and tiles only determine which
// sums are computed at the same time. BLAS does not guarantee an order.
#pragma once

#include "optim/math/lanes.h"

namespace gt {

// Row-major; rows are `stride` floats apart and zero beyond `cols`.
struct PaddedMatrix {
    PaddedMatrix(int64_t rows, int64_t cols);

    float *       row(int64_t r) { return data.data() + r * stride; }
    const float * row(int64_t r) const { return data.data() + r * stride; }

    int64_t    rows, cols, stride;
    LaneBuffer data;
};

PaddedMatrix transposed(const PaddedMatrix & x);

// c = a · b. symmetric: c is known to be symmetric, so only half of it is computed.
void multiply(const PaddedMatrix & a, const PaddedMatrix & b, bool symmetric, PaddedMatrix & c);

}  // namespace gt
