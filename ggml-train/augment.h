// ggml-train/augment.h — a stored picture -> the planes of floats that the model sees.
//
// Every change is drawn from a key, and the key is a function of (seed, step, host, sample):
// the same sample looks the same on whatever thread, rank or day it is made. Off by default.
// mixup: arXiv 1710.09412. cutout: arXiv 1708.04552. Random crop and resize: arXiv 1409.4842.
#pragma once

#include "ggml-train/images.h"

namespace gt {

struct AugmentOptions {
    float crop_min   = 1.0f;    // random crop: smallest share of the area; 1: off
    float aspect     = 1.333f;  // random crop: widest form
    int   pad        = 0;       // pad-crop: moved by up to this many pixels, edges continued
    bool  flip       = false;   // left and right, every second time
    float brightness = 0.0f;    // factor within 1 ± this
    float contrast   = 0.0f;
    float saturation = 0.0f;
    int   cutout     = 0;     // side of a square that is blanked; 0: off
    float mixup      = 0.0f;  // alpha of the Beta distribution; 0: off

    template <class Visit>
    void visit(Visit && visit) {
        visit("crop", crop_min, "random crop and resize: smallest share of the area; 1: off");
        visit("aspect", aspect, "random crop: widest form");
        visit("pad", pad, "moved by up to so many pixels");
        visit("flip", flip, "left and right, every second time");
        visit("brightness", brightness, "changed by up to this share");
        visit("contrast", contrast, "changed by up to this share");
        visit("saturation", saturation, "changed by up to this share");
        visit("cutout", cutout, "side of a square that is blanked, in pixels");
        visit("mixup", mixup, "alpha: pictures and labels are mixed in pairs; 0: off");
    }
};

// Names the random choices of one sample; i counts the host's samples of the step.
uint64_t sample_key(uint64_t seed, uint64_t step, const std::string & host, uint64_t i);

// What evaluation sees: the central part, normalised. out: [S, S, C].
void center_view(const PictureView & picture, const ImageSpec & spec, std::span<float> out);

// What training sees: `key` decides. out: [S, S, C].
void augment(
    const PictureView &    picture,
    const ImageSpec &      spec,
    const AugmentOptions & options,
    uint64_t               key,
    std::span<float>       out
);

// The share of each picture that stays its own under mixup: one for all samples of a step, so
// that the loss is mix * loss(labels) + (1 - mix) * loss(mix_labels). Without mixup 1.
float mixup_share(float alpha, uint64_t seed, uint64_t step, const std::string & host);

// Position i of a random order of [0, n); another one for each key. A bijection.
int64_t shuffled_index(uint64_t key, int64_t i, int64_t n);

}  // namespace gt
