// optim/math/dct-lanes.h — internal to dct.cpp: transforms of one vector of columns.
//
// second: DCT-II without its factors; third: its transpose; fourth: DCT-IV, its own transpose.
#pragma once

#include "optim/math/dct.h"

namespace gt {

using Level = Dct::Level;

// --- sums over a table -----------------------------------------------------------------------------

// out[k · step] = sum over i, ascending, of table[k][i] * x[i]; B outputs at a time share the loads.
template <int B>
static void table_rows(const float * table, int64_t n, const Lanes * x, float * out, int64_t step) {
    Lanes sum[B];
    for (int b = 0; b < B; ++b) {
        sum[b] = x[0] * table[b * n];
    }
    for (int64_t i = 1; i < n; ++i) {
        for (int b = 0; b < B; ++b) {
            sum[b] = sum[b] + x[i] * table[b * n + i];
        }
    }
    for (int b = 0; b < B; ++b) {
        store(out + b * step, sum[b]);
    }
}

static void
table_times(const float * table, int64_t n, const Lanes * x, float * out, int64_t step) {
    for (int64_t k = 0; k < n;) {
        const int64_t left = n - k;
        const float * rows = table + k * n;
        float *       to   = out + k * step;
        if (left == 7 || left == 14) {  // splits sizes 29 and 15 evenly
            table_rows<7>(rows, n, x, to, step);
            k += 7;
        } else if (left >= 8) {
            table_rows<8>(rows, n, x, to, step);
            k += 8;
        } else if (left >= 4) {
            table_rows<4>(rows, n, x, to, step);
            k += 4;
        } else {
            table_rows<1>(rows, n, x, to, step);
            k += 1;
        }
    }
}

static void table_times(const float * table, int64_t n, const Lanes * x, Lanes * out) {
    table_times(table, n, x, reinterpret_cast<float *>(out), kLanes);
}

// --- any size --------------------------------------------------------------------------------------
// Each works in place on level->n rows of lanes; tmp has as many.

static void second(const Level * level, Lanes * x, Lanes * tmp);

static void fourth(const Level * level, Lanes * x, Lanes * tmp) {
    const int64_t n = level->n, h = n / 2;
    if (n % 2 != 0) {
        table_times(level->fourth.data(), n, x, tmp);
        for (int64_t k = 0; k < n; ++k) {
            x[k] = tmp[k];
        }
        return;
    }
    const float * rotation = level->rotation.data();
    for (int64_t i = 0; i < h; ++i) {
        const float c = rotation[2 * i], s = rotation[2 * i + 1];
        const Lanes a = x[i], b = x[n - 1 - i];
        tmp[i]     = a * c + b * s;
        tmp[h + i] = i % 2 == 0 ? b * c - a * s : a * s - b * c;
    }
    second(level + 1, tmp, x);
    second(level + 1, tmp + h, x + h);
    x[0]     = tmp[0];
    x[n - 1] = -tmp[h];
    for (int64_t k = 1; k < h; ++k) {
        x[2 * k]     = tmp[k] + tmp[n - k];
        x[2 * k - 1] = tmp[k] - tmp[n - k];
    }
}

static void second(const Level * level, Lanes * x, Lanes * tmp) {
    const int64_t n = level->n, h = n / 2, n_even = n - h;
    for (int64_t i = 0; i < h; ++i) {
        tmp[i]          = x[i] + x[n - 1 - i];
        tmp[n_even + i] = x[i] - x[n - 1 - i];
    }
    if (n % 2 == 0) {
        second(level + 1, tmp, x);
        fourth(level + 1, tmp + h, x);
    } else {
        tmp[h] = x[h];
        table_times(level->even.data(), n_even, tmp, x);
        if (h > 0) {
            table_times(level->odd.data(), h, tmp + n_even, x + n_even);
        }
        for (int64_t k = 0; k < n; ++k) {
            tmp[k] = x[k];
        }
    }
    for (int64_t k = 0; k < n_even; ++k) {
        x[2 * k] = tmp[k];
    }
    for (int64_t k = 0; k < h; ++k) {
        x[2 * k + 1] = tmp[n_even + k];
    }
}

// The transpose of `second`; `fourth` is its own transpose.
static void third(const Level * level, Lanes * x, Lanes * tmp) {
    const int64_t n = level->n, h = n / 2, n_even = n - h;
    for (int64_t k = 0; k < n_even; ++k) {
        tmp[k] = x[2 * k];
    }
    for (int64_t k = 0; k < h; ++k) {
        tmp[n_even + k] = x[2 * k + 1];
    }
    if (n % 2 == 0) {
        third(level + 1, tmp, x);
        fourth(level + 1, tmp + h, x);
    } else {
        table_times(level->even_t.data(), n_even, tmp, x);
        if (h > 0) {
            table_times(level->odd_t.data(), h, tmp + n_even, x + n_even);
        }
        for (int64_t k = 0; k < n; ++k) {
            tmp[k] = x[k];
        }
        x[h] = tmp[h];
    }
    for (int64_t i = 0; i < h; ++i) {
        x[i]         = tmp[i] + tmp[n_even + i];
        x[n - 1 - i] = tmp[i] - tmp[n_even + i];
    }
}

// --- powers of two, unrolled: the same operations ----------------------------------------------------

template <int N>
struct Fixed {
    static constexpr int H = N / 2;

    [[gnu::always_inline]] static void fourth(const Level * level, Lanes * x) {
        const float * rotation = level->rotation.data();
        Lanes         a[H], b[H];
#pragma GCC unroll 32
        for (int i = 0; i < H; ++i) {
            const float c = rotation[2 * i], s = rotation[2 * i + 1];
            a[i] = x[i] * c + x[N - 1 - i] * s;
            b[i] = i % 2 == 0 ? x[N - 1 - i] * c - x[i] * s : x[i] * s - x[N - 1 - i] * c;
        }
        Fixed<H>::second(level + 1, a);
        Fixed<H>::second(level + 1, b);
        x[0]     = a[0];
        x[N - 1] = -b[0];
#pragma GCC unroll 32
        for (int k = 1; k < H; ++k) {
            x[2 * k]     = a[k] + b[H - k];
            x[2 * k - 1] = a[k] - b[H - k];
        }
    }

    [[gnu::always_inline]] static void second(const Level * level, Lanes * x) {
        Lanes s[H], d[H];
#pragma GCC unroll 32
        for (int i = 0; i < H; ++i) {
            s[i] = x[i] + x[N - 1 - i];
            d[i] = x[i] - x[N - 1 - i];
        }
        Fixed<H>::second(level + 1, s);
        Fixed<H>::fourth(level + 1, d);
#pragma GCC unroll 32
        for (int k = 0; k < H; ++k) {
            x[2 * k]     = s[k];
            x[2 * k + 1] = d[k];
        }
    }

    [[gnu::always_inline]] static void third(const Level * level, Lanes * x) {
        Lanes s[H], d[H];
#pragma GCC unroll 32
        for (int k = 0; k < H; ++k) {
            s[k] = x[2 * k];
            d[k] = x[2 * k + 1];
        }
        Fixed<H>::third(level + 1, s);
        Fixed<H>::fourth(level + 1, d);
#pragma GCC unroll 32
        for (int i = 0; i < H; ++i) {
            x[i]         = s[i] + d[i];
            x[N - 1 - i] = s[i] - d[i];
        }
    }
};

template <>
struct Fixed<1> {
    [[gnu::always_inline]] static void second(const Level *, Lanes *) {}
    [[gnu::always_inline]] static void third(const Level *, Lanes *) {}
    [[gnu::always_inline]] static void fourth(const Level * level, Lanes * x) {
        x[0] = x[0] * level->fourth[0];
    }
};

}  // namespace gt
