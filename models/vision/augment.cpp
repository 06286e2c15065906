// Crops, flips, colors; see augment.h.
#include "models/vision/augment.h"

#include "models/vision/rand-augment.h"
#include "models/vision/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gt {

uint64_t sample_key(uint64_t seed, uint64_t step, const std::string & host, uint64_t i) {
    return random_bits(seed, step, digest64(host), i);
}

// The largest box of the input's form inside the picture, times `crop`, in its center.
static Box fitted_box(const PictureView & picture, const ImageSpec & spec, float crop) {
    const float w = float(picture.width), h = float(picture.height);
    const float form = float(spec.columns()) / float(spec.size);
    const float high = crop * std::min(h, w / form), wide = high * form;
    return {(w - wide) / 2, (h - high) / 2, wide, high};
}

// The center crop of evaluation. Aligned to pixels if it already has the model's size, so that it is
// not resampled again.
static Box center_box(const PictureView & picture, const ImageSpec & spec) {
    const Box  box  = fitted_box(picture, spec, spec.crop);
    const bool fits = picture.width >= spec.columns() && picture.height >= spec.size;
    if (fits && std::fabs(box.height - float(spec.size)) < 1.0f &&
        std::fabs(box.width - float(spec.columns())) < 1.0f) {
        return {
            std::floor(float(picture.width - spec.columns()) / 2),
            std::floor(float(picture.height - spec.size) / 2), float(spec.columns()),
            float(spec.size)};
    }
    return box;
}

// A box of random area and aspect ratio; after ten misses the center.
static Box random_box(
    const PictureView & picture, const ImageSpec & spec, const AugmentOptions & options, Draw & draw
) {
    const float w = float(picture.width), h = float(picture.height);
    const float form  = std::log(std::max(1.0f, options.aspect));
    const float usual = float(spec.columns()) / float(spec.size);
    for (int i = 0; i < 10; ++i) {
        const float area  = w * h * draw.between(options.crop_min, 1.0f);
        const float ratio = usual * std::exp(draw.between(-form, form));
        const float bw = std::sqrt(area * ratio), bh = std::sqrt(area / ratio);
        if (bw <= w && bh <= h) {
            return {draw.between(0.0f, w - bw), draw.between(0.0f, h - bh), bw, bh};
        }
    }
    return fitted_box(picture, spec, 1.0f);
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

// Calls fn(row, begin, end) for each row of a rectangle in each plane.
template <class Fn>
static void each_row(
    std::span<float>  planes,
    const ImageSpec & spec,
    int               left,
    int               top,
    int               width,
    int               height,
    Fn &&             fn
) {
    const int W = spec.columns(), H = spec.size;
    for (int c = 0; c < spec.channels; ++c) {
        for (int y = std::max(0, top); y < std::min(H, top + height); ++y) {
            float * row = planes.data() + (size_t(c) * H + size_t(y)) * W;
            fn(row + std::max(0, left), row + std::clamp(left + width, 0, W));
        }
    }
}

// Sets a square to the mean. Its center may be anywhere, so that edges are covered, too.
static void cut_out(std::span<float> planes, const ImageSpec & spec, int side, Draw & draw) {
    const int left = draw.below(spec.columns()) - side / 2;
    const int top  = draw.below(spec.size) - side / 2;
    each_row(planes, spec, left, top, side, side, [](float * begin, float * end) {
        std::fill(begin, end, 0.0f);
    });
}

// Random erasing: noise in a rectangle of 2 to 33 percent of the area, at most 3.3 times as long as wide.
static void erase(std::span<float> planes, const ImageSpec & spec, Draw & draw) {
    const float W = float(spec.columns()), H = float(spec.size);
    for (int i = 0; i < 10; ++i) {
        const float area  = W * H * draw.between(0.02f, 0.33f);
        const float ratio = std::exp(draw.between(-1.2f, 1.2f));
        const int   w = int(std::sqrt(area * ratio)), h = int(std::sqrt(area / ratio));
        if (w > 0 && h > 0 && w < spec.columns() && h < spec.size) {
            const int left = draw.below(spec.columns() - w + 1),
                      top  = draw.below(spec.size - h + 1);
            each_row(planes, spec, left, top, w, h, [&](float * begin, float * end) {
                std::generate(begin, end, [&] { return draw.normal(); });
            });
            return;
        }
    }
}

void center_view(const PictureView & picture, const ImageSpec & spec, std::span<float> out) {
    resample(picture, center_box(picture, spec), spec.columns(), spec.size, false, out);
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
    Box  box = options.crop_min < 1.0f ? random_box(picture, spec, options, draw)
                                       : center_box(picture, spec);
    if (options.pad > 0) {
        const int n      = 2 * options.pad + 1;  // whole pixels of the model's input
        auto      offset = [&](float side, int pixels) {
            return float(draw.below(n) - options.pad) * side / float(pixels);
        };
        box.x += offset(box.width, spec.columns());
        box.y += offset(box.height, spec.size);
    }
    const bool flip = options.flip && draw.uniform() < 0.5f;

    resample(picture, box, spec.columns(), spec.size, flip, out);
    change_colors(out, spec.channels, options, draw);
    if (options.operations > 0) {
        const Planes planes{out, spec.columns(), spec.size, spec.channels};
        rand_augment(planes, options.operations, options.magnitude, draw);
    }
    normalise(out, spec);
    if (options.cutout > 0) {
        cut_out(out, spec, options.cutout, draw);
    }
    if (options.erase > 0.0f && draw.uniform() < options.erase) {
        erase(out, spec, draw);
    }
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
