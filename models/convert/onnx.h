// models/convert/onnx.h — writes a ViT as ONNX (opset 17), for ONNX Runtime and others.
//
// Input "pixels": F32 [batch, channels, height, width], values in [0, 1], red first; the graph normalizes them with
// the model's mean and deviation. Output "logits": F32 [batch, classes]. Any batch size. The metadata has the class
// names as "class_names", a JSON list.
#pragma once

#include "models/model-file.h"

namespace gt {

// Throws an Error if this build has no ONNX library.
void save_onnx(const std::string & path, const ModelFile & model);

}  // namespace gt
