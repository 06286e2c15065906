// models/merge.h — a model and its adapter as one model.
#pragma once

#include "models/model-file.h"

namespace gt {

// Writes base + adapter (a file of any program, or a checkpoint) as one model, a tensor at a time. Returns notes
// to print.
std::vector<std::string> save_merged(
    const std::string & path,
    const std::string & base_path,
    const std::string & adapter_path,
    WeightType          type = WeightType::f32
);

}  // namespace gt
