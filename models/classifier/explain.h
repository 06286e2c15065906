// models/classifier/explain.h — where a ViT looks: the attention of its last block.
#pragma once

#include "models/blocks.h"
#include "models/vision/image-data.h"

namespace gt {

// Attention to each patch, row by row, adding up to 1: the class token's, or the mean of all patches',
// averaged over the heads. pixels: one picture as read_model_input makes it.
std::vector<float>
last_attention(const Backend & backend, Transformer & model, std::span<const float> pixels);

// The picture as the model sees it, bright where it looks most and dark where it looks least, enlarged to
// about 512 pixels. attention: of a grid of patches.
Picture attention_picture(
    const ImageSpec &      spec,
    std::span<const float> pixels,
    std::span<const float> attention,
    int                    patch
);

}  // namespace gt
