// models/vision/rand-augment.h — RandAugment (arXiv 1909.13719): a few operations, drawn for each picture, all of one
// strength.
#pragma once

#include "models/vision/draw.h"

#include <span>

namespace gt {

// Planes [width, height, channels] of values in [0, 255].
struct Planes {
    std::span<float> values;
    int              width = 0, height = 0, channels = 0;

    std::span<float> plane(int c) const {
        const size_t n = size_t(width) * size_t(height);
        return values.subspan(size_t(c) * n, n);
    }
};

// Draws n operations of timm's fifteen; each is applied with probability 1/2, in a random direction.
// magnitude: 0 to 10.
void rand_augment(const Planes & planes, int n, float magnitude, Draw & draw);

}  // namespace gt
