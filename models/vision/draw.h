// models/vision/draw.h — a sequence of random numbers from one key.
#pragma once

#include "ggml-train/base/base.h"

#include <algorithm>
#include <cmath>

namespace gt {

class Draw {
public:
    explicit Draw(uint64_t key) : key_(key) {}

    float uniform() { return random_uniform(random_bits(key_, n_++)); }
    float between(float low, float high) { return low + (high - low) * uniform(); }
    int   below(int n) { return std::min(n - 1, int(uniform() * float(n))); }

    float normal() {
        const float radius = std::sqrt(-2.0f * std::log(1.0f - uniform()));
        return radius * std::cos(6.2831853f * uniform());
    }

    // Marsaglia and Tsang (2000), with their power transform for a < 1.
    float gamma(float a) {
        if (a < 1.0f) {
            const float power = std::pow(1.0f - uniform(), 1.0f / a);
            return gamma(a + 1.0f) * power;
        }
        const float d = a - 1.0f / 3.0f, c = 1.0f / std::sqrt(9.0f * d);
        for (;;) {
            const float x = normal(), v = std::pow(1.0f + c * x, 3.0f);
            if (v > 0.0f &&
                std::log(1.0f - uniform()) < 0.5f * x * x + d - d * v + d * std::log(v)) {
                return d * v;
            }
        }
    }

private:
    uint64_t key_;
    uint64_t n_ = 0;
};

}  // namespace gt
