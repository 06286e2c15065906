// models/vision/adapt-vit.h — adapts a trained ViT to another image size or other classes.
#pragma once

#include "models/model-file.h"

namespace gt {

// image: new image size (0: unchanged); positions are interpolated. classes: new number of classes (0:
// unchanged); the classifier is initialized from the seed. All other weights are kept.
ModelFile adapt_vit(ModelFile model, int64_t image, int64_t classes, uint64_t seed);

// Resamples a square grid of positions [C, from*from] to [C, to*to]: bicubic with a = -0.75, cell
// centers aligned, edges repeated, as PyTorch's interpolate.
std::vector<float> resize_grid(std::span<const float> grid, int64_t C, int64_t from, int64_t to);

}  // namespace gt
