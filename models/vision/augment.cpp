// Crops, flips, colors, mixup; see augment.h.
#include "models/vision/augment.h"

#include "models/vision/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gt {

namespace {

// A sequence of random numbers from one key.
class Draw {
public:
    explicit Draw(uint64_t key) : key_(key) {}

    float uniform() { return random_uniform(random_bits(key_, n_++)); }
    float between(float low, float high) { return low + (high - low) * uniform(); }

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

}  // namespace

uint64_t sample_key(uint64_t seed, uint64_t step, const std::string & host, uint64_t i) {
    return random_bits(seed, step, digest64(host), i);
}

// The center crop of evaluation. Aligned to pixels if it already has the model's size, so that it is
// not resampled again.
static Box center_box(const PictureView & picture, const ImageSpec & spec) {
    float side = spec.crop * float(std::min(picture.width, picture.height));
    if (std::fabs(side - float(spec.size)) < 1.0f) {
        side = float(std::min({spec.size, picture.width, picture.height}));
    }
    const float x = (float(picture.width) - side) / 2, y = (float(picture.height) - side) / 2;
    return side == float(spec.size) ? Box{std::floor(x), std::floor(y), side, side}
                                    : Box{x, y, side, side};
}

// A box of random area and aspect ratio; after ten misses the center.
static Box random_box(const PictureView & picture, const AugmentOptions & options, Draw & draw) {
    const float w = float(picture.width), h = float(picture.height);
    const float form = std::log(std::max(1.0f, options.aspect));
    for (int i = 0; i < 10; ++i) {
        const float area  = w * h * draw.between(options.crop_min, 1.0f);
        const float ratio = std::exp(draw.between(-form, form));
        const float bw = std::sqrt(area * ratio), bh = std::sqrt(area / ratio);
        if (bw <= w && bh <= h) {
            return {draw.between(0.0f, w - bw), draw.between(0.0f, h - bh), bw, bh};
        }
    }
    const float side = std::min(w, h);
    return {(w - side) / 2, (h - side) / 2, side, side};
}

// Sixteen partial sums, so that the compiler can vectorize.
static float mean_of(std::span<const float> values) {
    constexpr size_t kLanes      = 16;
    float            sum[kLanes] = {};
    const size_t     n           = values.size() / kLanes * kLanes;
    for (size_t i = 0; i < n; i += kLanes) {
        for (size_t k = 0; k < kLanes; ++k) {
            sum[k] += values[i + k];
        }
    }
    for (size_t i = n; i < values.size(); ++i) {
        sum[i - n] += values[i];
    }
    return std::accumulate(sum, sum + kLanes, 0.0f) / float(values.size());
}

// Brightness, contrast, saturation on planes of [0, 255].
static void
change_colors(std::span<float> planes, int C, const AugmentOptions & options, Draw & draw) {
    if (options.brightness <= 0 && options.contrast <= 0 && options.saturation <= 0) {
        return;
    }
    auto factor = [&](float by) { return std::max(0.0f, draw.between(1.0f - by, 1.0f + by)); };
    const float  bright = factor(options.brightness), contrast = factor(options.contrast);
    const float  colour = C == 3 ? factor(options.saturation) : 1.0f;
    const float  mean   = bright * mean_of(planes);
    const float  scale = bright * contrast, offset = mean * (1.0f - contrast);
    const size_t n = planes.size() / size_t(C);
    if (C == 1) {
        for (float & value : planes) {
            value = std::clamp(value * scale + offset, 0.0f, 255.0f);
        }
        return;
    }
    float *red = planes.data(), *green = red + n, *blue = green + n;
    for (size_t i = 0; i < n; ++i) {
        const float r = red[i] * scale + offset, g = green[i] * scale + offset,
                    b    = blue[i] * scale + offset;
        const float grey = (1.0f - colour) * (0.299f * r + 0.587f * g + 0.114f * b);
        red[i]           = std::clamp(colour * r + grey, 0.0f, 255.0f);
        green[i]         = std::clamp(colour * g + grey, 0.0f, 255.0f);
        blue[i]          = std::clamp(colour * b + grey, 0.0f, 255.0f);
    }
}

static void normalise(std::span<float> planes, const ImageSpec & spec) {
    const size_t plane = planes.size() / size_t(spec.channels);
    for (int c = 0; c < spec.channels; ++c) {
        const float scale  = 1.0f / (255.0f * spec.deviation[c]);
        const float offset = -spec.mean[c] / spec.deviation[c];
        for (float & value : planes.subspan(size_t(c) * plane, plane)) {
            value = value * scale + offset;
        }
    }
}

// Sets a square to the mean. Its center may be anywhere, so that edges are covered, too.
static void cut_out(std::span<float> planes, const ImageSpec & spec, int side, Draw & draw) {
    const int S  = spec.size;
    const int x0 = std::min(S - 1, int(draw.uniform() * float(S))) - side / 2;
    const int y0 = std::min(S - 1, int(draw.uniform() * float(S))) - side / 2;
    for (int c = 0; c < spec.channels; ++c) {
        for (int y = std::max(0, y0); y < std::min(S, y0 + side); ++y) {
            float * row = planes.data() + (size_t(c) * S + size_t(y)) * S;
            std::fill(row + std::max(0, x0), row + std::clamp(x0 + side, 0, S), 0.0f);
        }
    }
}

void center_view(const PictureView & picture, const ImageSpec & spec, std::span<float> out) {
    resample(picture, center_box(picture, spec), spec.size, spec.size, false, out);
    normalise(out, spec);
}

void augment(
    const PictureView &    picture,
    const ImageSpec &      spec,
    const AugmentOptions & options,
    uint64_t               key,
    std::span<float>       out
) {
    Draw draw(key);
    Box  box =
        options.crop_min < 1.0f ? random_box(picture, options, draw) : center_box(picture, spec);
    if (options.pad > 0) {
        const int   n      = 2 * options.pad + 1;  // whole pixels of the model's input
        const float pixel  = box.width / float(spec.size);
        auto        offset = [&] {
            return float(std::min(n - 1, int(draw.uniform() * float(n))) - options.pad) * pixel;
        };
        box.x += offset();
        box.y += offset();
    }
    const bool flip = options.flip && draw.uniform() < 0.5f;

    resample(picture, box, spec.size, spec.size, flip, out);
    change_colors(out, spec.channels, options, draw);
    normalise(out, spec);
    if (options.cutout > 0) {
        cut_out(out, spec, options.cutout, draw);
    }
}

float mixup_share(float alpha, uint64_t seed, uint64_t step, const std::string & host) {
    if (alpha <= 0.0f) {
        return 1.0f;
    }
    Draw        draw(random_bits(sample_key(seed, step, host, ~0ull), 0x6d6978));
    const float a = draw.gamma(alpha), b = draw.gamma(alpha);
    return a + b > 0.0f ? std::max(a, b) / (a + b) : 1.0f;  // the own picture has the larger weight
}

// A Feistel network of four rounds on the smallest even number of bits that covers n; values outside
// [0, n) pass through it again (cycle walking).
int64_t shuffled_index(uint64_t key, int64_t i, int64_t n) {
    GT_CHECK(i >= 0 && i < n, "index within the permutation");
    int half = 1;
    while ((int64_t(1) << (2 * half)) < n) {
        ++half;
    }
    const uint64_t mask = (uint64_t(1) << half) - 1;
    uint64_t       x    = uint64_t(i);
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; ++round) {
            const uint64_t next = left ^ (random_bits(key, round, right) & mask);
            left                = right;
            right               = next;
        }
        x = left << half | right;
    } while (x >= uint64_t(n));
    return int64_t(x);
}

}  // namespace gt
