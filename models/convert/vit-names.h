// models/convert/vit-names.h — the tensor names of ViTs elsewhere: timm's, and Hugging Face's in terms of timm's.
#pragma once

#include "models/model-config.h"

#include <optional>
#include <string>

namespace gt {

// timm's name of one of our tensors. Queries, keys and values are apart, as "blocks.0.attn.q_proj.weight":
// timm joins them as "blocks.0.attn.qkv.weight".
std::string timm_name(const std::string & ours, const ModelConfig & config);

// The name that timm would use for a tensor of Hugging Face's ViT, DeiT or DINOv2; a name of timm's is kept.
std::string to_timm_name(const std::string & name);

// Whether a classifier ignores this tensor of timm's name: what only pre-training or distillation use.
bool is_for_training(const std::string & timm);

}  // namespace gt
