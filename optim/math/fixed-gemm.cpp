#include "optim/math/fixed-gemm.h"

#include <algorithm>
#include <cstring>

namespace gt {

static constexpr int     kWide  = kLanes == 16 ? 4 : 2;  // vectors side by side in a tile
static constexpr int     kTall  = 6;               // rows of a tile: its sums fill the registers
static constexpr int64_t kPanel = kWide * kLanes;  // columns of b that are packed together
static constexpr int64_t kDeep  = 256;             // rows of it: they stay in cache
static constexpr int64_t kPad   = 64;              // a multiple of kPanel for every width

PaddedMatrix::PaddedMatrix(int64_t rows, int64_t cols)
    : rows(rows), cols(cols), stride((cols + kPad - 1) / kPad * kPad), data(rows * stride) {
    std::memset(data.data(), 0, rows * stride * sizeof(float));
}

PaddedMatrix transposed(const PaddedMatrix & x) {
    constexpr int64_t kBlock = 16;
    PaddedMatrix      result(x.cols, x.rows);
    for (int64_t r0 = 0; r0 < x.rows; r0 += kBlock) {
        const int64_t r1 = std::min(x.rows, r0 + kBlock);
        for (int64_t c = 0; c < x.cols; ++c) {
            for (int64_t r = r0; r < r1; ++r) {
                result.row(c)[r] = x.row(r)[c];
            }
        }
    }
    return result;
}

// c += a · panel for R rows: a and c have the given strides, the panel is [kPanel, depth].
template <int R>
static void tile(
    const float * a,
    int64_t       a_stride,
    const float * panel,
    int64_t       depth,
    float *       c,
    int64_t       c_stride
) {
    Lanes sum[R][kWide];
    for (int r = 0; r < R; ++r) {
        for (int w = 0; w < kWide; ++w) {
            sum[r][w] = load(c + r * c_stride + w * kLanes);
        }
    }
    for (int64_t l = 0; l < depth; ++l, panel += kPanel) {
        Lanes b[kWide];
        for (int w = 0; w < kWide; ++w) {
            b[w] = load(panel + w * kLanes);
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            const Lanes one = a[r * a_stride + l] - Lanes{};  // in every lane
#pragma GCC unroll 4
            for (int w = 0; w < kWide; ++w) {
                sum[r][w] = fused(one, b[w], sum[r][w]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int w = 0; w < kWide; ++w) {
            store(c + r * c_stride + w * kLanes, sum[r][w]);
        }
    }
}

static void
pack(const PaddedMatrix & b, int64_t first, int64_t depth, int64_t column, float * out) {
    for (int64_t l = 0; l < depth; ++l) {
        std::memcpy(out + l * kPanel, b.row(first + l) + column, kPanel * sizeof(float));
    }
}

void multiply(const PaddedMatrix & a, const PaddedMatrix & b, bool symmetric, PaddedMatrix & c) {
    std::memset(c.data.data(), 0, c.rows * c.stride * sizeof(float));
    const LaneBuffer panel(kDeep * kPanel);
    for (int64_t column = 0; column < c.cols; column += kPanel) {
        // of a symmetric matrix only what is on or above the diagonal
        const int64_t rows = symmetric ? std::min(a.rows, column + kPanel) : a.rows;
        for (int64_t l = 0; l < a.cols; l += kDeep) {
            const int64_t depth = std::min(kDeep, a.cols - l);
            pack(b, l, depth, column, panel.data());
            int64_t r = 0;
            for (; r + kTall <= rows; r += kTall) {
                tile<kTall>(
                    a.row(r) + l, a.stride, panel.data(), depth, c.row(r) + column, c.stride
                );
            }
            for (; r < rows; ++r) {
                tile<1>(a.row(r) + l, a.stride, panel.data(), depth, c.row(r) + column, c.stride);
            }
        }
    }
    for (int64_t r = kPanel; symmetric && r < c.rows; ++r) {
        for (int64_t k = 0; k < r / kPanel * kPanel; ++k) {
            c.row(r)[k] = c.row(k)[r];
        }
    }
}

}  // namespace gt
