// models/lora.h — adapters (LoRA, arXiv 2106.09685): y = W x + alpha/rank * B A x. W stays as it is in the base's
// file; A and B are the model that is trained, exchanged and saved, in llama.cpp's names and layout.
// Read next: base-weights.h (W), blocks.cpp (the product).
#pragma once

#include "ggml-train/gguf/model-head.h"

#include <memory>

namespace gt {

class BaseWeights;

struct LoraConfig {
    int64_t                            rank  = 0;  // 0: no adapter, all weights are trained
    float                              alpha = 0.0f;
    std::string                        on;    // "attn_q,attn_v"; empty: every matrix of the blocks
    std::shared_ptr<const BaseWeights> base;  // null: only A and B are at hand

    bool  enabled() const { return rank > 0; }
    float scale() const { return alpha / static_cast<float>(rank); }
};

// A and B of every matrix that has an adapter, for a model of these tensors; a ViT's classifier as it is. Throws
// an Error if `on` names a matrix that the model does not have, or the rank is too large.
std::vector<TensorSpec> lora_specs(const LoraConfig & lora, const std::vector<TensorSpec> & base);

// W += scale * B A, in place. W [K, M] row by row, A [K, rank], B [rank, M].
void add_adapter(
    std::span<float>       W,
    std::span<const float> A,
    std::span<const float> B,
    int64_t                rank,
    float                  scale
);

}  // namespace gt
