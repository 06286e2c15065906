// Vertical pass first (whole rows at a time, which vectorizes), then horizontal into the planes.
#include "models/vision/resize.h"

#include <algorithm>
#include <cmath>

namespace gt {

namespace {

// The input positions of each output position, with weights that add up to 1.
struct Taps {
    int                n = 0;  // per output position
    std::vector<int>   index;
    std::vector<float> weight;
};

}  // namespace

static void make_taps(float begin, float length, int n_in, int n_out, Taps & taps) {
    const float scale   = length / float(n_out);
    const float support = std::max(scale, 1.0f);
    taps.n              = int(std::ceil(2 * support)) + 1;
    taps.index.assign(size_t(n_out) * taps.n, 0);
    taps.weight.assign(size_t(n_out) * taps.n, 0.0f);
    for (int o = 0; o < n_out; ++o) {
        const float centre = begin + (float(o) + 0.5f) * scale;
        const int   first  = int(std::floor(centre - support));
        int *       index  = &taps.index[size_t(o) * taps.n];
        float *     weight = &taps.weight[size_t(o) * taps.n];
        const bool  inside = centre > 0.0f && centre < float(n_in);
        float       sum    = 0.0f;
        for (int t = 0; t < taps.n; ++t) {
            const float distance = std::fabs(float(first + t) + 0.5f - centre) / support;
            index[t]             = std::clamp(first + t, 0, n_in - 1);
            weight[t]            = std::max(0.0f, 1.0f - distance);
            if (inside && index[t] != first + t) {
                weight[t] = 0.0f;  // beyond the edge
            }
            sum += weight[t];
        }
        for (int t = 0; t < taps.n; ++t) {
            weight[t] /= sum;
        }
    }
}

// row[k] = sum over t of weight[t] * picture row index[t], for columns [begin, end).
static void sum_rows(
    const PictureView & picture,
    const int *         index,
    const float *       weight,
    int                 n,
    int                 begin,
    int                 end,
    float *             row
) {
    const size_t stride = size_t(picture.width) * picture.channels;
    std::fill(row + begin, row + end, 0.0f);
    for (int t = 0; t < n; ++t) {
        const float w = weight[t];
        if (w == 0.0f) {
            continue;
        }
        const uint8_t * from = picture.pixels + size_t(index[t]) * stride;
        for (int k = begin; k < end; ++k) {
            row[k] += w * float(from[k]);
        }
    }
}

template <int C>
static void
sum_columns(const float * row, const Taps & taps, int out_w, float * out, size_t plane, bool flip) {
    for (int o = 0; o < out_w; ++o) {
        const int *   index  = &taps.index[size_t(o) * taps.n];
        const float * weight = &taps.weight[size_t(o) * taps.n];
        float         sum[C] = {};
        for (int t = 0; t < taps.n; ++t) {
            for (int c = 0; c < C; ++c) {
                sum[c] += weight[t] * row[index[t] * C + c];
            }
        }
        for (int c = 0; c < C; ++c) {
            out[c * plane + size_t(flip ? out_w - 1 - o : o)] = sum[c];
        }
    }
}

void resample(
    const PictureView & picture,
    const Box &         box,
    int                 out_w,
    int                 out_h,
    bool                flip,
    std::span<float>    planes
) {
    const int    C     = picture.channels;
    const size_t plane = size_t(out_w) * size_t(out_h);
    GT_CHECK(planes.size() == plane * size_t(C), "planes are [out_w, out_h, C]");
    GT_CHECK(box.width > 0 && box.height > 0, "the box is not empty");

    // kept between calls: this runs once per sample
    thread_local Taps               columns, rows;
    thread_local std::vector<float> row;
    make_taps(box.x, box.width, picture.width, out_w, columns);
    make_taps(box.y, box.height, picture.height, out_h, rows);
    const auto [first, last] = std::minmax_element(columns.index.begin(), columns.index.end());
    row.resize(size_t(picture.width) * C);

    for (int y = 0; y < out_h; ++y) {
        const size_t at = size_t(y) * rows.n;
        sum_rows(
            picture, &rows.index[at], &rows.weight[at], rows.n, *first * C, (*last + 1) * C,
            row.data()
        );
        float * out = planes.data() + size_t(y) * out_w;
        if (C == 3) {
            sum_columns<3>(row.data(), columns, out_w, out, plane, flip);
        } else {
            sum_columns<1>(row.data(), columns, out_w, out, plane, flip);
        }
    }
}

void resize_picture(
    const PictureView & picture, const Box & box, int out_w, int out_h, Picture & out
) {
    const int          C     = picture.channels;
    const size_t       plane = size_t(out_w) * size_t(out_h);
    std::vector<float> planes(plane * size_t(C));
    resample(picture, box, out_w, out_h, false, planes);

    out.width    = out_w;
    out.height   = out_h;
    out.channels = C;
    out.pixels.resize(plane * size_t(C));
    for (int c = 0; c < C; ++c) {
        for (size_t i = 0; i < plane; ++i) {
            const float value = std::clamp(planes[c * plane + i], 0.0f, 255.0f);
            // NOLINTNEXTLINE(bugprone-incorrect-roundings): not negative
            out.pixels[i * C + c] = uint8_t(value + 0.5f);
        }
    }
}

}  // namespace gt
