// models/convert/import-vit.h — makes a model of ours from a ViT or DeiT of timm or Hugging Face.
//
// Sizes come from the tensors; what tensors do not show (heads, epsilon, normalisation, class names) from
// config.json beside them. Values are copied, never transposed: memory order is the same.
#pragma once

#include "models/model-file.h"

namespace gt {

bool is_safetensors(const std::string & path);

// heads, classes: 0, or what the user asked for; a model without a classifier gets one of `classes`, initialized from
// the seed. Throws an Error that names the file and what is missing or not supported.
ModelFile import_vit(const std::string & path, int64_t heads, int64_t classes, uint64_t seed);

}  // namespace gt
