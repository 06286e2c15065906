#include "models/vision/rand-augment.h"

#include <array>
#include <numeric>
#include <vector>

namespace gt {

namespace {

constexpr float kGrey = 128.0f;  // beyond the edge

uint8_t level(float value) {
    return uint8_t(std::lround(std::clamp(value, 0.0f, 255.0f)));
}

template <class Fn>
void each_value(const Planes & p, Fn && fn) {
    for (float & value : p.values) {
        value = std::clamp(fn(value), 0.0f, 255.0f);
    }
}

// Output (x, y), counted from the center, is the input at (a x + b y + c, d x + e y + f), bilinear.
struct Affine {
    float a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;
};

void warp(const Planes & p, const Affine & m) {
    thread_local std::vector<float> from;
    const int                       W = p.width, H = p.height;
    const float                     cx = 0.5f * float(W - 1), cy = 0.5f * float(H - 1);
    for (int channel = 0; channel < p.channels; ++channel) {
        const std::span<float> plane = p.plane(channel);
        from.assign(plane.begin(), plane.end());
        const auto at = [&](int x, int y) {
            return x >= 0 && y >= 0 && x < W && y < H ? from[size_t(y) * W + size_t(x)] : kGrey;
        };
        for (int y = 0; y < H; ++y) {
            for (int x = 0; x < W; ++x) {
                const float u = float(x) - cx, v = float(y) - cy;
                const float sx = m.a * u + m.b * v + m.c + cx, sy = m.d * u + m.e * v + m.f + cy;
                const float fx = std::floor(sx), fy = std::floor(sy);
                const int   ix = int(fx), iy = int(fy);
                const float tx = sx - fx, ty = sy - fy;
                const float top    = at(ix, iy) + tx * (at(ix + 1, iy) - at(ix, iy));
                const float bottom = at(ix, iy + 1) + tx * (at(ix + 1, iy + 1) - at(ix, iy + 1));
                plane[size_t(y) * W + size_t(x)] = top + ty * (bottom - top);
            }
        }
    }
}

void auto_contrast(const Planes & p) {
    for (int c = 0; c < p.channels; ++c) {
        const auto plane    = p.plane(c);
        const auto [lo, hi] = std::minmax_element(plane.begin(), plane.end());
        const float low = *lo, range = *hi - *lo;
        for (float & value : plane) {
            value = range > 0.0f ? (value - low) * 255.0f / range : value;
        }
    }
}

// A flat histogram, as Pillow's ImageOps.equalize.
void equalize(const Planes & p) {
    for (int c = 0; c < p.channels; ++c) {
        std::array<int, 256> count{};
        for (const float value : p.plane(c)) {
            ++count[level(value)];
        }
        int last = 0;
        for (const int n : count) {
            last = n > 0 ? n : last;
        }
        const int step = (int(p.plane(c).size()) - last) / 255;
        if (step == 0) {
            continue;
        }
        std::array<float, 256> table{};
        for (int i = 0, n = step / 2; i < 256; n += count[size_t(i)], ++i) {
            table[size_t(i)] = float(std::min(255, n / step));
        }
        for (float & value : p.plane(c)) {
            value = table[level(value)];
        }
    }
}

// value = grey + factor * (value - grey), with the grey of each pixel.
void saturate(const Planes & p, float factor) {
    if (p.channels != 3) {
        return;
    }
    const auto r = p.plane(0), g = p.plane(1), b = p.plane(2);
    for (size_t i = 0; i < r.size(); ++i) {
        const float grey = 0.299f * r[i] + 0.587f * g[i] + 0.114f * b[i];
        for (float * value : {&r[i], &g[i], &b[i]}) {
            *value = std::clamp(grey + factor * (*value - grey), 0.0f, 255.0f);
        }
    }
}

void contrast(const Planes & p, float factor) {
    const float mean =
        std::accumulate(p.values.begin(), p.values.end(), 0.0f) / float(p.values.size());
    each_value(p, [&](float value) { return mean + factor * (value - mean); });
}

// Away from, or towards, the picture smoothed by Pillow's SMOOTH; the edge stays.
void sharpen(const Planes & p, float factor) {
    thread_local std::vector<float> from;
    const int                       W = p.width, H = p.height;
    for (int c = 0; c < p.channels; ++c) {
        const auto plane = p.plane(c);
        from.assign(plane.begin(), plane.end());
        for (int y = 1; y + 1 < H; ++y) {
            for (int x = 1; x + 1 < W; ++x) {
                float sum = 4.0f * from[size_t(y) * W + size_t(x)];
                for (int k = 0; k < 9; ++k) {
                    sum += from[size_t(y + k / 3 - 1) * W + size_t(x + k % 3 - 1)];
                }
                const float smooth = sum / 13.0f;
                float &     value  = plane[size_t(y) * W + size_t(x)];
                value              = std::clamp(smooth + factor * (value - smooth), 0.0f, 255.0f);
            }
        }
    }
}

// m: strength in [0, 1]; sign: 1 or -1.
void apply_operation(const Planes & p, int which, float m, float sign) {
    const float factor = 1.0f + 0.9f * m * sign, shear = 0.3f * m * sign, move = 0.45f * m * sign;
    switch (which) {
        case 0:
            return auto_contrast(p);
        case 1:
            return equalize(p);
        case 2:
            return each_value(p, [](float value) { return 255.0f - value; });
        case 3: {
            const float angle = m * sign * 0.5235988f;  // 30 degrees
            const float c = std::cos(angle), s = std::sin(angle);
            return warp(p, {.a = c, .b = -s, .d = s, .e = c});
        }
        case 4: {  // fewer bits
            const int mask = 0xff << int(4.0f * m) & 0xff;
            return each_value(p, [&](float value) { return float(level(value) & mask); });
        }
        case 5: {  // invert what is brighter
            const float limit = 256.0f * (1.0f - m);
            return each_value(p, [&](float value) {
                return value < limit ? value : 255.0f - value;
            });
        }
        case 6:  // brighten what is darker
            return each_value(p, [&](float value) {
                return value < kGrey ? value + 110.0f * m : value;
            });
        case 7:
            return saturate(p, factor);
        case 8:
            return contrast(p, factor);
        case 9:
            return each_value(p, [&](float value) { return factor * value; });
        case 10:
            return sharpen(p, factor);
        case 11:
            return warp(p, {.b = shear});
        case 12:
            return warp(p, {.d = shear});
        case 13:
            return warp(p, {.c = move * float(p.width)});
        default:
            return warp(p, {.f = move * float(p.height)});
    }
}

}  // namespace

void rand_augment(const Planes & planes, int n, float magnitude, Draw & draw) {
    for (int i = 0; i < n; ++i) {
        const int   which = draw.below(15);
        const float sign  = draw.uniform() < 0.5f ? -1.0f : 1.0f;
        if (draw.uniform() < 0.5f) {
            apply_operation(planes, which, magnitude / 10.0f, sign);
        }
    }
}

}  // namespace gt
