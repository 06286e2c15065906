// ggml-train/cpu/norm.cpp — layer norm (arXiv 1607.06450), RMS norm (arXiv 1910.07467), column sums.
//
// Forward and the gradient of x work row by row, within the L1 cache; the gradients of the parameters
// work along columns, a few rows at a time.
#include "ggml-train/cpu/simd.h"

#include <cmath>

namespace gt::cpu {

void layer_norm(
    Part          part,
    int64_t       rows,
    int64_t       C,
    float         eps,
    const float * x,
    const float * w,
    const float * b,
    float *       y,
    float *       stats
) {
    const Range mine = share(part, rows);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
        const float * xr   = x + r * C;
        float *       yr   = y + r * C;
        const float   mean = sum_each(C, [&](int64_t i, auto k) { return load(xr + i, k); }) / C;
        const float   var  = sum_each(
                                 C,
                                 [&](int64_t i, auto k) {
                                  const Vec d = load(xr + i, k) - mean;
                                  return d * d;
                              }
                             ) /
                          C;
        const float inv = static_cast<float>(1.0 / std::sqrt(static_cast<double>(var) + eps));
        each(C, [&](int64_t i, auto k) {
            const Vec n = (load(xr + i, k) - mean) * inv;
            store(yr + i, n * load(w + i, k) + load(b + i, k), k);
        });
        stats[2 * r]     = mean;
        stats[2 * r + 1] = inv;
    }
}

void rms_norm(
    Part          part,
    int64_t       rows,
    int64_t       C,
    float         eps,
    const float * x,
    const float * w,
    float *       y,
    float *       stats
) {
    const Range mine = share(part, rows);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
        const float * xr      = x + r * C;
        float *       yr      = y + r * C;
        const float   squares = sum_each(C, [&](int64_t i, auto k) {
            const Vec v = load(xr + i, k);
            return v * v;
        });
        const float   inv =
            static_cast<float>(1.0 / std::sqrt(static_cast<double>(squares) / C + eps));
        each(C, [&](int64_t i, auto k) {
            store(yr + i, load(xr + i, k) * inv * load(w + i, k), k);
        });
        stats[2 * r]     = 0.0f;
        stats[2 * r + 1] = inv;
    }
}

// With n the normalised x and g = dy * w: dx = inv * (g - mean(g) - n * mean(g * n)); the RMS norm
// subtracts no mean, so its gradient has no mean(g).
template <bool kCentred>
static void norm_back(
    Part          part,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * w,
    const float * stats,
    const float * add,
    float *       dx
) {
    const Range mine = share(part, rows);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
        const float * dyr  = dy + r * C;
        const float * xr   = x + r * C;
        const float * addr = add ? add + r * C : nullptr;
        float *       dxr  = dx + r * C;
        const float   mean = stats[2 * r], inv = stats[2 * r + 1];

        const TwoSums total  = sum_two_each(C, [&](int64_t i, auto k) {
            const Vec g = load(dyr + i, k) * load(w + i, k);
            return Two{g, g * ((load(xr + i, k) - mean) * inv)};
        });
        const float   mean_g = kCentred ? total.a / C : 0.0f, mean_gn = total.b / C;

        each(C, [&](int64_t i, auto k) {
            const Vec n = (load(xr + i, k) - mean) * inv;
            const Vec g = load(dyr + i, k) * load(w + i, k);
            const Vec d = (g - mean_g - n * mean_gn) * inv;
            store(dxr + i, addr ? load(addr + i, k) + d : d, k);
        });
    }
}

void layer_norm_back(
    Part          part,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * w,
    const float * stats,
    const float * add,
    float *       dx
) {
    norm_back<true>(part, rows, C, dy, x, w, stats, add, dx);
}

void rms_norm_back(
    Part          part,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * w,
    const float * stats,
    const float * add,
    float *       dx
) {
    norm_back<false>(part, rows, C, dy, x, w, stats, add, dx);
}

static void scale(int64_t n, float beta, float * out) {
    each(n, [&](int64_t i, auto k) {
        store(out + i, beta == 0.0f ? Vec{} : load(out + i, k) * beta, k);
    });
}

// Adds kRows rows to dw and db at a time: the sums are then loaded and stored that much less often.
template <int kRows>
static void add_params(
    int64_t       n,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * stats,
    float *       dw,
    float *       db
) {
    each(n, [&](int64_t i, auto k) {
        Vec w = load(dw + i, k);
        Vec b = db ? load(db + i, k) : Vec{};
        for (int r = 0; r < kRows; ++r) {
            const Vec g = load(dy + r * C + i, k);
            w += g * ((load(x + r * C + i, k) - stats[2 * r]) * stats[2 * r + 1]);
            b += g;
        }
        store(dw + i, w, k);
        if (db) {
            store(db + i, b, k);
        }
    });
}

void norm_back_params(
    Part          part,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * stats,
    float         beta,
    float *       dw,
    float *       db
) {
    const Range   cols = share(part, C, 16);
    const int64_t n    = cols.end - cols.begin;
    dw += cols.begin;
    db = db ? db + cols.begin : nullptr;
    scale(n, beta, dw);
    if (db) {
        scale(n, beta, db);
    }
    dy += cols.begin;
    x += cols.begin;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        add_params<4>(n, C, dy + r * C, x + r * C, stats + 2 * r, dw, db);
    }
    for (; r < rows; ++r) {
        add_params<1>(n, C, dy + r * C, x + r * C, stats + 2 * r, dw, db);
    }
}

template <int kRows>
static void add_rows(int64_t n, const float * x, int64_t ld, float * out) {
    each(n, [&](int64_t i, auto k) {
        Vec v = load(out + i, k);
        for (int r = 0; r < kRows; ++r) {
            v += load(x + r * ld + i, k);
        }
        store(out + i, v, k);
    });
}

void sum_rows(
    Part part, int64_t rows, int64_t C, const float * x, int64_t ld, float beta, float * out
) {
    const Range   cols = share(part, C, 16);
    const int64_t n    = cols.end - cols.begin;
    scale(n, beta, out + cols.begin);
    x += cols.begin;
    int64_t r = 0;
    for (; r + 8 <= rows; r += 8) {
        add_rows<8>(n, x + r * ld, ld, out + cols.begin);
    }
    for (; r < rows; ++r) {
        add_rows<1>(n, x + r * ld, ld, out + cols.begin);
    }
}

}  // namespace gt::cpu
