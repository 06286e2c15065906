// ggml-train/contact-sheet.h — the worst mistakes of a classifier on one sheet, for people.
#pragma once

#include "ggml-train/images.h"

namespace gt {

struct Mistake {
    Picture     picture;
    std::string name;  // of the file
    std::string true_class;
    std::string predicted;
    float       confidence = 0.0f;  // that the model had in `predicted`
};

// Writes a sheet with the given mistakes, in their order: a .png, or else one HTML page with the
// pictures inside. Throws Error if the file cannot be written.
void write_contact_sheet(const std::string & path, std::span<const Mistake> mistakes);

// `picture` as the bytes of a PNG file.
Bytes encode_png(const PictureView & picture);

}  // namespace gt
