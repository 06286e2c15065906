// optim/fixed-gemm.h — products of matrices that are the same bits on every machine.
//
// Each sum runs over k in ascending order, one fused multiply-add after the other; lanes and tiles
// only decide which sums are under way at the same time. BLAS promises no order.
#pragma once

#include "optim/lanes.h"

namespace gt {

// Row-major; a row takes `stride` floats, of which those behind `cols` are zero.
struct PaddedMatrix {
    PaddedMatrix(int64_t rows, int64_t cols);

    float *       row(int64_t r) { return data.data() + r * stride; }
    const float * row(int64_t r) const { return data.data() + r * stride; }

    int64_t    rows, cols, stride;
    LaneBuffer data;
};

PaddedMatrix transposed(const PaddedMatrix & x);

// c = a · b. symmetric: c is known to be, so that half of it is copied from the other half.
void multiply(const PaddedMatrix & a, const PaddedMatrix & b, bool symmetric, PaddedMatrix & c);

}  // namespace gt
