// ggml-train/cpu/activation.cpp — elementwise functions: GELU (arXiv 1606.08415),
// SwiGLU (arXiv 2002.05202), rotary positions (arXiv 2104.09864), dropout.
#include "ggml-train/base/base.h"
#include "ggml-train/cpu/simd.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace gt::cpu {

// gelu(x) = x * Phi(x). Phi by the error function, or by its usual approximation
// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kTwoRootTwoOverPi = 1.59576912160573f;  // 2 sqrt(2/pi)
constexpr float kCube             = 0.044715f;

template <Gelu kKind>
static Vec gelu_value(Vec x) {
    if constexpr (kKind == Gelu::erf) {
        return x * normal(x).below;
    } else {
        return x * sigmoid(kTwoRootTwoOverPi * x * (1.0f + kCube * x * x));
    }
}

template <Gelu kKind>
static Vec gelu_slope(Vec x) {
    if constexpr (kKind == Gelu::erf) {
        const Normal p = normal(x);
        return p.below + x * p.density;
    } else {
        const Vec xx = x * x;
        const Vec s  = sigmoid(kTwoRootTwoOverPi * x * (1.0f + kCube * xx));
        return s + s * (1.0f - s) * x * (kTwoRootTwoOverPi * (1.0f + 3.0f * kCube * xx));
    }
}

template <Gelu kKind>
static void gelu_range(Range mine, const float * x, float * y) {
    each(mine.end - mine.begin, [&](int64_t j, auto k) {
        const int64_t i = mine.begin + j;
        store(y + i, gelu_value<kKind>(load(x + i, k)), k);
    });
}

template <Gelu kKind>
static void gelu_back_range(Range mine, const float * x, const float * dy, float * dx) {
    each(mine.end - mine.begin, [&](int64_t j, auto k) {
        const int64_t i = mine.begin + j;
        store(dx + i, load(dy + i, k) * gelu_slope<kKind>(load(x + i, k)), k);
    });
}

void gelu(Part part, int64_t n, Gelu kind, const float * x, float * y) {
    const Range mine = share(part, n, 16);
    kind == Gelu::erf ? gelu_range<Gelu::erf>(mine, x, y) : gelu_range<Gelu::tanh>(mine, x, y);
}

void gelu_back(Part part, int64_t n, Gelu kind, const float * x, const float * dy, float * dx) {
    const Range mine = share(part, n, 16);
    kind == Gelu::erf ? gelu_back_range<Gelu::erf>(mine, x, dy, dx)
                      : gelu_back_range<Gelu::tanh>(mine, x, dy, dx);
}

void swiglu(Part part, int64_t n, const float * gate, const float * up, float * y) {
    const Range mine = share(part, n, 16);
    each(mine.end - mine.begin, [&](int64_t j, auto k) {
        const int64_t i = mine.begin + j;
        const Vec     g = load(gate + i, k);
        store(y + i, g * sigmoid(g) * load(up + i, k), k);
    });
}

void swiglu_back(
    Part          part,
    int64_t       n,
    const float * gate,
    const float * up,
    const float * dy,
    float *       dgate,
    float *       dup
) {
    const Range mine = share(part, n, 16);
    each(mine.end - mine.begin, [&](int64_t j, auto k) {
        const int64_t i = mine.begin + j;
        const Vec     g = load(gate + i, k), u = load(up + i, k), d = load(dy + i, k);
        const Vec     s = sigmoid(g);
        store(dgate + i, d * u * s * (1.0f + g * (1.0f - s)), k);
        store(dup + i, d * g * s, k);
    });
}

// One head: the pair (p, q) becomes (p cos - q sin, q cos + p sin).
static void rotate_neighbours(
    int64_t D, const float * x, const float * cosines, const float * sines, float * y
) {
    each(D, [&](int64_t i, auto k) {
        const Vec v = load(x + i, k);
        store(y + i, v * load(cosines + i, k) + swap_lanes<1>(v) * load(sines + i, k), k);
    });
}

static void
rotate_halves(int64_t D, const float * x, const float * cosines, const float * sines, float * y) {
    const int64_t half = D / 2;
    each(half, [&](int64_t i, auto k) {
        const Vec p = load(x + i, k), q = load(x + half + i, k);
        const Vec c = load(cosines + i, k), s = load(sines + i, k);
        store(y + i, p * c - q * s, k);
        store(y + half + i, q * c + p * s, k);
    });
}

// Positions are split over threads: the angles of one are worked out once for all rows and heads.
void rope(Part part, const Rope & r, bool backward, const float * x, float * y) {
    thread_local std::vector<float> angles;
    angles.resize(2 * r.D);
    float *       cosines = angles.data();
    float *       sines   = angles.data() + r.D;
    const int64_t ld      = r.n_heads * r.D;
    const Range   mine    = share(part, r.T);
    for (int64_t t = mine.begin; t < mine.end; ++t) {
        for (int64_t i = 0; i < r.D / 2; ++i) {
            const double angle = (double) t / (double) r.divisors[i];
            const float  c     = (float) (std::cos(angle) * r.scale);
            const float  s     = (float) (std::sin(angle) * (backward ? -r.scale : r.scale));
            if (r.neox) {
                cosines[i] = c;
                sines[i]   = s;
            } else {
                cosines[2 * i] = cosines[2 * i + 1] = c;
                sines[2 * i]                        = -s;
                sines[2 * i + 1]                    = s;
            }
        }
        for (int64_t b = 0; b < r.B; ++b) {
            const float * xt = x + (b * r.T + t) * ld;
            float *       yt = y + (b * r.T + t) * ld;
            for (int64_t h = 0; h < r.n_rot; ++h) {
                const auto rotate = r.neox ? rotate_halves : rotate_neighbours;
                rotate(r.D, xt + h * r.D, cosines, sines, yt + h * r.D);
            }
            if (x != y && r.n_rot < r.n_heads) {
                std::memcpy(
                    yt + r.n_rot * r.D, xt + r.n_rot * r.D,
                    (size_t) ((r.n_heads - r.n_rot) * r.D) * sizeof(float)
                );
            }
        }
    }
}

void dropout(Part part, const Dropout & d, const float * x, float * y) {
    constexpr int64_t kPer      = 4;  // values per call of random_bits, 16 bits each
    const auto        threshold = (uint64_t) (d.rate * 65536.0f);
    const float       scale     = 1.0f / (1.0f - d.rate);
    const Range       mine      = share(part, d.B * d.T);
    for (int64_t row = mine.begin; row < mine.end; ++row) {
        const auto     key = (uint32_t) d.keys[row / d.T];
        const uint64_t at  = random_bits(key, (uint64_t) d.layer, (uint64_t) (row % d.T));
        for (int64_t c = 0; c < d.C; c += kPer) {
            uint64_t bits = random_bits(at, (uint64_t) c);
            for (int64_t i = row * d.C + c; i < row * d.C + std::min(c + kPer, d.C); ++i) {
                y[i] = (bits & 0xffff) < threshold ? 0.0f : scale * x[i];
                bits >>= 16;
            }
        }
    }
}

}  // namespace gt::cpu
