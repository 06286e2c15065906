// ggml-train/resize.h — a part of a picture at another size, without aliasing.
//
// A triangle filter as wide as the reduction asks for (bilinear when enlarging): what Pillow calls
// BILINEAR and torchvision "bilinear, antialias". Same size and whole-numbered corner: a copy.
#pragma once

#include "ggml-train/images.h"

namespace gt {

// A rectangle in pixels; may be fractional and may reach over the edge, where the outermost
// pixels go on.
struct Box {
    float x = 0, y = 0, width = 0, height = 0;
};

// Writes planes [out_w, out_h, C] of values in [0, 255]; `flip` mirrors left and right.
void resample(
    const PictureView & picture,
    const Box &         box,
    int                 out_w,
    int                 out_h,
    bool                flip,
    std::span<float>    planes
);

// The same, rounded, as a picture.
void resize_picture(
    const PictureView & picture, const Box & box, int out_w, int out_h, Picture & out
);

}  // namespace gt
