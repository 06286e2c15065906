#include "optim/math/dct.h"

#include "ggml-train/base/base.h"
#include "optim/math/dct-lanes.h"

#include <cmath>

namespace gt {

// --- tables ----------------------------------------------------------------------------------------

static std::vector<float> transposed(const std::vector<float> & table, int64_t n) {
    std::vector<float> result(n * n);
    for (int64_t i = 0; i < n * n; ++i) {
        result[i % n * n + i / n] = table[i];
    }
    return result;
}

static Level make_level(int64_t n) {
    Level level{.n = n};
    if (n % 2 == 0) {
        for (int64_t i = 0; i < n / 2; ++i) {
            level.rotation.push_back(static_cast<float>(cos_pi(2 * i + 1, 4 * n)));
            level.rotation.push_back(static_cast<float>(cos_pi(2 * n - 2 * i - 1, 4 * n)));
        }
        return level;
    }
    for (int64_t k = 0; k < n; ++k) {
        // rows are symmetric for even k and antisymmetric for odd k
        std::vector<float> & half   = k % 2 == 0 ? level.even : level.odd;
        const int64_t        n_half = k % 2 == 0 ? n / 2 + 1 : n / 2;
        for (int64_t i = 0; i < n_half; ++i) {
            half.push_back(static_cast<float>(cos_pi((2 * i + 1) * k, 2 * n)));
        }
        for (int64_t i = 0; i < n; ++i) {
            level.fourth.push_back(static_cast<float>(cos_pi((2 * i + 1) * (2 * k + 1), 4 * n)));
        }
    }
    level.even_t = transposed(level.even, n / 2 + 1);
    level.odd_t  = transposed(level.odd, n / 2);
    return level;
}

Dct::Dct(int64_t n) : n_(n) {
    GT_CHECK(n >= 1, "a transform has at least one row");
    scale_ = n == 1 ? 1.0f : static_cast<float>(std::sqrt(2.0 / static_cast<double>(n)));
    for (; n % 2 == 0; n /= 2) {
        levels_.push_back(make_level(n));
    }
    levels_.push_back(make_level(n));
}

// --- columns ---------------------------------------------------------------------------------------

// Input and output columns.
struct Columns {
    const float * from;
    int64_t       from_stride;
    float *       to;
    int64_t       to_stride, width;
};

// Loads lanes of columns, transforms them, stores them; row 0 carries the 1/sqrt(2) of DCT-II.
template <int N>
static void forward_fixed(const Level * level, const Columns & columns) {
    for (int64_t c = 0; c < columns.width; c += kLanes) {
        Lanes v[N];
#pragma GCC unroll 64
        for (int i = 0; i < N; ++i) {
            v[i] = load(columns.from + i * columns.from_stride + c);
        }
        Fixed<N>::second(level, v);
        v[0] = v[0] * kHalfRoot;
#pragma GCC unroll 64
        for (int i = 0; i < N; ++i) {
            store(columns.to + i * columns.to_stride + c, v[i]);
        }
    }
}

template <int N>
static void inverse_fixed(const Level * level, const Columns & columns) {
    for (int64_t c = 0; c < columns.width; c += kLanes) {
        Lanes v[N];
#pragma GCC unroll 64
        for (int i = 0; i < N; ++i) {
            v[i] = load(columns.from + i * columns.from_stride + c);
        }
        v[0] = v[0] * kHalfRoot;
        Fixed<N>::third(level, v);
#pragma GCC unroll 64
        for (int i = 0; i < N; ++i) {
            store(columns.to + i * columns.to_stride + c, v[i]);
        }
    }
}

// Odd sizes: sums and differences of mirrored rows, then table sums.
static void forward_odd(const Level & level, const Columns & columns) {
    const int64_t    n = level.n, h = n / 2;
    const LaneBuffer buffer(n * kLanes);
    Lanes *          sums  = reinterpret_cast<Lanes *>(buffer.data());
    Lanes *          diffs = sums + h + 1;
    for (int64_t c = 0; c < columns.width; c += kLanes) {
        for (int64_t i = 0; i < h; ++i) {
            const Lanes a = load(columns.from + i * columns.from_stride + c);
            const Lanes b = load(columns.from + (n - 1 - i) * columns.from_stride + c);
            sums[i]       = a + b;
            diffs[i]      = a - b;
        }
        sums[h]    = load(columns.from + h * columns.from_stride + c);
        float * to = columns.to + c;
        table_times(level.even.data(), h + 1, sums, to, 2 * columns.to_stride);
        table_times(level.odd.data(), h, diffs, to + columns.to_stride, 2 * columns.to_stride);
        store(to, load(to) * kHalfRoot);
    }
}

static void inverse_odd(const Level & level, const Columns & columns) {
    const int64_t    n = level.n, h = n / 2;
    const LaneBuffer buffer(2 * n * kLanes);
    Lanes *          in  = reinterpret_cast<Lanes *>(buffer.data());
    Lanes *          out = in + n;
    for (int64_t c = 0; c < columns.width; c += kLanes) {
        for (int64_t k = 0; k <= h; ++k) {
            in[k] = load(columns.from + 2 * k * columns.from_stride + c);
        }
        for (int64_t k = 0; k < h; ++k) {
            in[h + 1 + k] = load(columns.from + (2 * k + 1) * columns.from_stride + c);
        }
        in[0] = in[0] * kHalfRoot;
        table_times(level.even_t.data(), h + 1, in, out);
        table_times(level.odd_t.data(), h, in + h + 1, out + h + 1);
        for (int64_t i = 0; i < h; ++i) {
            store(columns.to + i * columns.to_stride + c, out[i] + out[h + 1 + i]);
            store(columns.to + (n - 1 - i) * columns.to_stride + c, out[i] - out[h + 1 + i]);
        }
        store(columns.to + h * columns.to_stride + c, out[h]);
    }
}

template <class Transform>
static void any_size(int64_t n, const Columns & columns, Transform transform) {
    const LaneBuffer buffer(2 * n * kLanes);
    Lanes *          v   = reinterpret_cast<Lanes *>(buffer.data());
    Lanes *          tmp = v + n;
    for (int64_t c = 0; c < columns.width; c += kLanes) {
        for (int64_t i = 0; i < n; ++i) {
            v[i] = load(columns.from + i * columns.from_stride + c);
        }
        transform(v, tmp);
        for (int64_t i = 0; i < n; ++i) {
            store(columns.to + i * columns.to_stride + c, v[i]);
        }
    }
}

void Dct::forward(
    const float * from, int64_t from_stride, float * to, int64_t to_stride, int64_t width
) const {
    const Level * level = levels_.data();
    const Columns columns{from, from_stride, to, to_stride, width};
    if (n_ % 2 != 0 && n_ > 1) {
        return forward_odd(*level, columns);
    }
    switch (n_) {
        case 8:
            return forward_fixed<8>(level, columns);
        case 16:
            return forward_fixed<16>(level, columns);
        case 32:
            return forward_fixed<32>(level, columns);
        case 64:
            return forward_fixed<64>(level, columns);
        default:
            any_size(n_, columns, [&](Lanes * v, Lanes * tmp) {
                if (n_ > 1) {
                    second(level, v, tmp);
                    v[0] = v[0] * kHalfRoot;
                }
            });
    }
}

void Dct::inverse(
    const float * from, int64_t from_stride, float * to, int64_t to_stride, int64_t width
) const {
    const Level * level = levels_.data();
    const Columns columns{from, from_stride, to, to_stride, width};
    if (n_ % 2 != 0 && n_ > 1) {
        return inverse_odd(*level, columns);
    }
    switch (n_) {
        case 8:
            return inverse_fixed<8>(level, columns);
        case 16:
            return inverse_fixed<16>(level, columns);
        case 32:
            return inverse_fixed<32>(level, columns);
        case 64:
            return inverse_fixed<64>(level, columns);
        default:
            any_size(n_, columns, [&](Lanes * v, Lanes * tmp) {
                if (n_ > 1) {
                    v[0] = v[0] * kHalfRoot;
                    third(level, v, tmp);
                }
            });
    }
}

}  // namespace gt
