// models/vision/augment.h — turns a stored picture into model input: planes of floats.
//
// All random choices are a function of a key, and the key of (seed, step, host, sample): a sample does
// not depend on thread, rank or timing. Everything is off by default.
// cutout: arXiv 1708.04552. Random crop and resize: arXiv 1409.4842. Random erasing: arXiv 1708.04896. Repeated
// augmentation: arXiv 1901.09335. Read next: mix.h (mixup and CutMix), rand-augment.h.
#pragma once

#include "models/vision/image-data.h"

namespace gt {

struct AugmentOptions {
    float crop_min   = 1.0f;    // random crop: smallest fraction of the area; 1: off
    float aspect     = 1.333f;  // random crop: largest aspect ratio
    int   pad        = 0;       // pad-crop: shift by up to this many pixels
    bool  flip       = false;   // horizontal flip with probability 1/2
    float brightness = 0.0f;    // factor in 1 ± this
    float contrast   = 0.0f;
    float saturation = 0.0f;
    int   cutout     = 0;     // side of a blanked square; 0: off
    int   operations = 0;     // RandAugment: operations per picture; 0: off
    float magnitude  = 9.0f;  // RandAugment: their strength, 0 to 10
    float erase      = 0.0f;  // random erasing: probability; 0: off
    float mixup      = 0.0f;  // alpha of the Beta distribution; 0: off
    float cutmix     = 0.0f;  // the same
    int   repeats    = 1;     // samples of a step that show the same picture

    template <class Visit>
    void visit(Visit && visit) {
        visit(
            "crop", crop_min, "random resized crop: smallest fraction of the area; 1: off", {},
            0.01, 1
        );
        visit("aspect", aspect, "random resized crop: largest aspect ratio", {}, 1, 100);
        visit("pad", pad, "random shift by up to this many pixels");
        visit("flip", flip, "random horizontal flip");
        visit("brightness", brightness, "random brightness factor in 1 +- this; 0: off", {}, 0, 1);
        visit("contrast", contrast, "random contrast factor in 1 +- this; 0: off", {}, 0, 1);
        visit("saturation", saturation, "random saturation factor in 1 +- this; 0: off", {}, 0, 1);
        visit("cutout", cutout, "side of a random blanked square, in pixels; 0: off");
        visit(
            "mixup", mixup,
            "mix pairs of pictures and labels; alpha of the Beta distribution; 0: off", {}, 0
        );
        visit(
            "cutmix", cutmix,
            "put a rectangle of one picture into another; alpha as for --mixup; 0: off", {}, 0
        );
        visit(
            "randaugment", operations,
            "RandAugment: random operations on each picture, usually 2; 0: off", {}, 0, 15
        );
        visit("magnitude", magnitude, "RandAugment: strength of the operations", {}, 0, 10);
        visit("erase", erase, "probability to replace a rectangle by noise; 0: off", {}, 0, 1);
        visit(
            "repeats", repeats,
            "samples per step with the same picture, augmented differently; divides --batch", {}, 1,
            1000
        );
    }
};

// Key of sample i of a host's step.
uint64_t sample_key(uint64_t seed, uint64_t step, const std::string & host, uint64_t i);

// Input for evaluation: the center crop, normalized. out: [W, H, C].
void center_view(const PictureView & picture, const ImageSpec & spec, std::span<float> out);

// Input for training. out: [W, H, C].
void augment(
    const PictureView &    picture,
    const ImageSpec &      spec,
    const AugmentOptions & options,
    uint64_t               key,
    std::span<float>       out
);

// Element i of a random permutation of [0, n); each key has its own.
int64_t shuffled_index(uint64_t key, int64_t i, int64_t n);

}  // namespace gt
