// models/classifier/mistakes.h — the worst mistakes of a classifier as an HTML page with the pictures inside.
#pragma once

#include "models/vision/image-data.h"

namespace gt {

struct Mistake {
    Picture     picture;
    std::string name;  // of the file
    std::string true_class;
    std::string predicted;
    float       confidence = 0.0f;  // in `predicted`
};

// Writes a page with the HTML `top` and the mistakes, in this order. Throws an Error if the file cannot be written.
void write_mistake_page(
    const std::string &      path,
    const std::string &      title,
    const std::string &      top,
    std::span<const Mistake> mistakes
);

// A PNG file of 8-bit pixels.
Bytes encode_png(const PictureView & picture);

}  // namespace gt
