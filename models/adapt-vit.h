// models/adapt-vit.h — a trained ViT made ready for other pictures: another size, other classes.
#pragma once

#include "ggml-train/model-file.h"

namespace gt {

// The same model for pictures of `image` pixels (0: as it was): positions are interpolated, all
// else stays. `classes` (0: as it was) gives it a new classifier, drawn from the seed.
ModelFile adapt_vit(ModelFile model, int64_t image, int64_t classes, uint64_t seed);

// A square grid of positions [C, from*from] on another grid [C, to*to]: bicubic with a = -0.75 and
// centres of cells aligned, edges continued, as PyTorch's interpolate does it.
std::vector<float> resize_grid(std::span<const float> grid, int64_t C, int64_t from, int64_t to);

}  // namespace gt
