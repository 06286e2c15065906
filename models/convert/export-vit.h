// models/convert/export-vit.h — writes a ViT for other programs.
#pragma once

#include "models/model-file.h"

namespace gt {

// Writes the tensors under timm's names, and config.json beside the file, from which timm.create_model makes the
// model. Returns the path of config.json.
std::string save_timm(const std::string & path, const ModelFile & model);

}  // namespace gt
