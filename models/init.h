// models/init.h — initial weights: a pure function of (seed, tensor name, index), so that every host
// makes the same model and a tensor does not depend on the others.
//
// GPT-2 and Llama: normal 0.02, residual projections divided by sqrt(2L) (GPT-2, llama2.c); ViT: normal
// 0.02 cut at two deviations (timm, HF). Each architecture's file sets Init per tensor.
#pragma once

#include "models/model-file.h"

namespace gt {

// Fills one tensor.
void init_tensor(const TensorSpec & spec, uint64_t seed, std::span<float> values);

// Fills all tensors of a model, on all cores.
void init_model(ModelFile & model, uint64_t seed);

// Whether the weights have been trained: norms and biases, which start as ones and zeros, have changed.
bool is_trained(const ModelFile & model);

}  // namespace gt
