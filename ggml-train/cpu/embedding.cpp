// ggml-train/cpu/embedding.cpp — lookup of rows in a table, and its gradient.
#include "ggml-train/cpu/simd.h"

namespace gt::cpu {

static void scale_or_clear(int64_t n, float beta, float * out) {
    if (beta == 0.0f) {
        std::memset(out, 0, (size_t) n * sizeof(float));
    } else if (beta != 1.0f) {
        each(n, [&](int64_t i, auto k) { store(out + i, load(out + i, k) * beta, k); });
    }
}

static void add(int64_t n, const float * x, float * out) {
    each(n, [&](int64_t i, auto k) { store(out + i, load(out + i, k) + load(x + i, k), k); });
}

void embedding(
    Part            part,
    int64_t         n,
    int64_t         T,
    int64_t         C,
    const int32_t * ids,
    const float *   table,
    const float *   position,
    float *         x
) {
    const Range mine = share(part, n);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
        const float * row = table + ids[i] * C;
        if (position) {
            const float * pos = position + i % T * C;
            each(C, [&](int64_t c, auto k) {
                store(x + i * C + c, load(row + c, k) + load(pos + c, k), k);
            });
        } else {
            std::memcpy(x + i * C, row, (size_t) C * sizeof(float));
        }
    }
}

void embedding_back(
    Part            part,
    int64_t         n,
    int64_t         V,
    int64_t         C,
    const int32_t * ids,
    const float *   dx,
    float           beta,
    float *         table
) {
    const Range   cols  = share(part, C, 16);
    const int64_t width = cols.end - cols.begin;
    if (beta != 1.0f) {
        for (int64_t v = 0; v < V; ++v) {
            scale_or_clear(width, beta, table + v * C + cols.begin);
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        add(width, dx + i * C + cols.begin, table + ids[i] * C + cols.begin);
    }
}

void position_back(
    Part part, int64_t B, int64_t T, int64_t C, const float * dx, float beta, float * position
) {
    const Range   mine = share(part, T * C, 16);
    const int64_t n    = mine.end - mine.begin;
    scale_or_clear(n, beta, position + mine.begin);
    for (int64_t b = 0; b < B; ++b) {
        add(n, dx + b * T * C + mine.begin, position + mine.begin);
    }
}

}  // namespace gt::cpu
