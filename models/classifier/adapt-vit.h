// models/classifier/adapt-vit.h — adapts a trained ViT to another image size or other classes.
#pragma once

#include "models/model-file.h"

namespace gt {

// What changes; 0: as it is.
struct VitChanges {
    int64_t image   = 0;  // height, and width unless that is given; positions are interpolated
    int64_t width   = 0;
    int64_t classes = 0;  // the classifier is initialized from the seed
};

// All other weights are kept.
ModelFile adapt_vit(ModelFile model, const VitChanges & changes, uint64_t seed);

// Height and width of a grid of positions.
struct Grid {
    int64_t height = 0, width = 0;
};

// Resamples positions [C, width, height]: bicubic with a = -0.5, antialiased, edges cut, as timm resamples
// (PyTorch's interpolate with antialias).
std::vector<float>
resize_grid(std::span<const float> positions, int64_t C, const Grid & from, const Grid & to);

}  // namespace gt
