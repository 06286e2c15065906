// models/vision/resize.h — resamples a region of a picture without aliasing.
//
// A triangle filter scaled to the reduction (bilinear when enlarging): Pillow's BILINEAR, torchvision's
// "bilinear, antialias". The same size at an integer corner is a copy.
#pragma once

#include "models/vision/image-data.h"

namespace gt {

// A rectangle in pixels; may be fractional and may exceed the picture, whose edge pixels are then
// repeated.
struct Box {
    float x = 0, y = 0, width = 0, height = 0;
};

// Writes planes [out_w, out_h, C] of values in [0, 255]; flip: mirrored horizontally.
void resample(
    const PictureView & picture,
    const Box &         box,
    int                 out_w,
    int                 out_h,
    bool                flip,
    std::span<float>    planes
);

// Rounds the result to a picture.
void resize_picture(
    const PictureView & picture, const Box & box, int out_w, int out_h, Picture & out
);

}  // namespace gt
