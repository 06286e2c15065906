// ggml-train/cpu/loss.cpp — cross entropy from label indices; the gradient replaces the logits.
//
// A row is read three times, once from memory: at 50304 columns it fits the L2 cache.
#include "ggml-train/cpu/simd.h"

#include <cmath>

namespace gt::cpu {

static float largest(int64_t n, const float * x) {
    constexpr float kLowest = -3.4e38f;
    Vec             top[4]  = {splat(kLowest), splat(kLowest), splat(kLowest), splat(kLowest)};
    int64_t         i       = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
        for (int u = 0; u < 4; ++u) {
            top[u] = max(load(x + i + u * kLanes), top[u]);
        }
    }
    each(n - i, [&](int64_t j, auto k) {
        top[0] = max(keep(load(x + i + j, k), kLowest, k), top[0]);
    });
    return max(max(max(top[0], top[1]), max(top[2], top[3])));
}

void cross_entropy(
    Part            part,
    int64_t         rows,
    int64_t         V,
    int64_t         ld,
    float *         logits,
    const int32_t * labels,
    float           smoothing,
    float           scale,
    bool            grad,
    float *         loss
) {
    const Range mine  = share(part, rows);
    const float share = smoothing / V;  // of the target, on every column
    for (int64_t r = mine.begin; r < mine.end; ++r) {
        float *       x     = logits + r * ld;
        const int32_t label = labels[r];
        if (label < 0) {
            loss[r] = 0.0f;
            if (grad) {
                std::memset(x, 0, (size_t) ld * sizeof(float));
            }
            continue;
        }

        const float top     = largest(V, x);
        const float picked  = x[label] - top;
        const float average = smoothing == 0.0f ? 0.0f : sum_each(V, [&](int64_t i, auto k) {
                                                             return load(x + i, k) - top;
                                                         }) / V;
        const float total   = sum_each(V, [&](int64_t i, auto k) {
            const Vec e = exp(load(x + i, k) - top);
            if (grad) {
                store(x + i, e, k);
            }
            return e;
        });

        loss[r] = std::log(total) - (1.0f - smoothing) * picked - smoothing * average;
        if (grad) {
            const float factor = scale / total, less = scale * share;
            each(V, [&](int64_t i, auto k) { store(x + i, load(x + i, k) * factor - less, k); });
            x[label] -= scale * (1.0f - smoothing);
            std::memset(x + V, 0, (size_t) (ld - V) * sizeof(float));
        }
    }
}

}  // namespace gt::cpu
