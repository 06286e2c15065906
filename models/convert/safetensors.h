// models/convert/safetensors.h — reads and writes safetensors files: named tensors without code.
//
//     bytes       content
//     8           n: length of the header, little-endian
//     n           JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}, and
//                 optionally "__metadata__": {"key": "text"}; may be padded with spaces
//     the rest    values, little-endian, in C order; offsets count from here
//
// The tensors cover the rest exactly, as Hugging Face's own reader demands: no gap, no overlap.
// Read next: import-vit.h, export-vit.h.
#pragma once

#include "ggml-train/base/file.h"

#include <map>

namespace gt {

struct SafeTensor {
    std::string          type;                // "F32", "F16" or "BF16"
    std::vector<int64_t> shape;               // C order: the last dimension is contiguous
    uint64_t             begin = 0, end = 0;  // bytes in the file

    int64_t     n_elements() const;
    std::string shape_text() const;  // "[2, 3]"
};

struct SafetensorsHead {
    std::map<std::string, SafeTensor>  tensors;
    std::map<std::string, std::string> metadata;
};

// Checks everything but the values. Throws an Error that begins with `where`, the file.
SafetensorsHead parse_safetensors(std::span<const uint8_t> file, const std::string & where);

// Converts the values of a tensor to F32. REQUIRES: the tensor is of this file's head.
std::vector<float> read_values(std::span<const uint8_t> file, const SafeTensor & tensor);

// A tensor to write, as F32.
struct SafeValues {
    std::string            name;
    std::vector<int64_t>   shape;
    std::span<const float> values;
};

// Writes a file completely or not at all.
void write_safetensors(
    const std::string &                        path,
    const std::vector<SafeValues> &            tensors,
    const std::map<std::string, std::string> & metadata
);

}  // namespace gt
