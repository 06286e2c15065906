// models/init.h — first weights of a model: a pure function of (seed, tensor name, index), so that
// every machine makes the same model and a tensor does not depend on which others there are.
//
// GPT-2: normal 0.02, residual projections divided by sqrt(2L); llama alike (llama2.c); ViT: normal
// 0.02 cut at two deviations (timm, HF). Which tensor takes which: tensor_specs in model-config.cpp.
#pragma once

#include "ggml-train/model-file.h"

namespace gt {

// Fills one tensor.
void init_tensor(const TensorSpec & spec, uint64_t seed, std::span<float> values);

// Fills all tensors of a model, on all cores.
void init_model(ModelFile & model, uint64_t seed);

}  // namespace gt
