// models/vision/mix.h — what the two pictures of a pair have of each other: mixup (arXiv 1710.09412), CutMix
// (arXiv 1905.04899), the same for all samples of a step.
#pragma once

#include "models/vision/augment.h"

namespace gt {

struct Mix {
    float share = 1.0f;  // of a sample's own picture, and of its label in the loss
    bool  cut   = false;
    int   left = 0, top = 0, right = 0, bottom = 0;  // cut: the rectangle of the other picture
};

bool is_mixed(const AugmentOptions & options);

// With both kinds on, each step draws one of them. A pure function of its arguments.
Mix mix_of(
    const AugmentOptions & options,
    const ImageSpec &      spec,
    uint64_t               seed,
    uint64_t               step,
    const std::string &    host
);

// out = `own` with its share of `other`; all are planes [width, height, C].
void mix_pictures(
    const Mix &            mix,
    const ImageSpec &      spec,
    std::span<const float> own,
    std::span<const float> other,
    std::span<float>       out
);

}  // namespace gt
