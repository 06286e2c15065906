#include "models/vision/mix.h"

#include "models/vision/draw.h"

namespace gt {

bool is_mixed(const AugmentOptions & options) {
    return options.mixup > 0.0f || options.cutmix > 0.0f;
}

Mix mix_of(
    const AugmentOptions & options,
    const ImageSpec &      spec,
    uint64_t               seed,
    uint64_t               step,
    const std::string &    host
) {
    Mix mix;
    if (!is_mixed(options)) {
        return mix;
    }
    const uint64_t key = sample_key(seed, step, host, ~0ull);
    mix.cut            = options.cutmix > 0.0f &&
              (options.mixup <= 0.0f || Draw(random_bits(key, 0x637574)).uniform() < 0.5f);
    Draw        draw(random_bits(key, 0x6d6978));
    const float alpha = mix.cut ? options.cutmix : options.mixup;
    const float a = draw.gamma(alpha), b = draw.gamma(alpha);
    if (a + b <= 0.0f) {
        mix.cut = false;
        return mix;
    }
    if (!mix.cut) {
        mix.share = std::max(a, b) / (a + b);  // the own picture has the larger weight
        return mix;
    }
    const int   W = spec.columns(), H = spec.size;
    const float side  = std::sqrt(a / (a + b));
    const int   width = int(side * float(W)), height = int(side * float(H));
    const int   x = draw.below(W), y = draw.below(H);
    mix.left   = std::max(0, x - width / 2);
    mix.top    = std::max(0, y - height / 2);
    mix.right  = std::min(W, x - width / 2 + width);
    mix.bottom = std::min(H, y - height / 2 + height);
    mix.share  = 1.0f - float((mix.right - mix.left) * (mix.bottom - mix.top)) / float(W * H);
    return mix;
}

void mix_pictures(
    const Mix &            mix,
    const ImageSpec &      spec,
    std::span<const float> own,
    std::span<const float> other,
    std::span<float>       out
) {
    if (!mix.cut) {
        for (size_t i = 0; i < out.size(); ++i) {
            out[i] = mix.share * own[i] + (1.0f - mix.share) * other[i];
        }
        return;
    }
    const size_t W = size_t(spec.columns()), H = size_t(spec.size);
    std::copy(own.begin(), own.end(), out.begin());
    for (int c = 0; c < spec.channels; ++c) {
        for (int y = mix.top; y < mix.bottom; ++y) {
            const size_t row = (size_t(c) * H + size_t(y)) * W;
            std::copy(
                other.begin() + ptrdiff_t(row) + mix.left,
                other.begin() + ptrdiff_t(row) + mix.right, out.begin() + ptrdiff_t(row) + mix.left
            );
        }
    }
}

}  // namespace gt
