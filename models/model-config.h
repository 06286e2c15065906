// models/model-config.h — the sizes of a model. Plain data, one struct for all architectures.
//
// Read next: arch.h (tensors, keys and checks of each architecture), presets.h (named sizes).
#pragma once

#include "models/lora.h"
#include "models/rope.h"

namespace gt {

struct ModelConfig {
    std::string arch;           // name of a row in arch.h's table
    int64_t     n_embd    = 0;  // C
    int64_t     n_layer   = 0;  // L
    int64_t     n_head    = 0;  // H
    int64_t     n_head_kv = 0;  // key and value heads, a divisor of n_head
    int64_t     head_size = 0;  // values of a head; 0: n_embd / n_head
    int64_t     n_ff      = 0;  // width inside the MLP
    float       norm_eps  = 1e-5f;

    // text
    int64_t    n_vocab = 0;     // V: rows of the embedding, one per token of the tokenizer
    int64_t    n_ctx   = 0;     // T: longest sequence
    bool       tied    = true;  // the output matrix is the token embedding
    RopeConfig rope;

    // Llama and its relatives: what files may have or not
    std::vector<std::string> biases;             // matrices of a block that have one: "attn_q", ...
    bool                     fused_qkv = false;  // one matrix attn_qkv for queries, keys and values

    // Gemma 3: layers see a window of tokens, except every n-th
    int64_t window           = 0;  // tokens; 0: all layers see all
    int64_t window_every     = 6;
    float   window_rope_base = 10000.0f;  // of the layers with a window

    LoraConfig lora;  // an adapter is trained, not the model

    // of training: not part of the model's file
    int64_t n_frozen    = 0;     // blocks, with everything before them, that are not trained
    float   layer_decay = 1.0f;  // the learning rate of a block, as a fraction of the next one's

    // images
    int64_t     image_size  = 0;  // height in pixels
    int64_t     image_width = 0;  // 0: as the height
    int64_t     patch_size  = 0;
    int64_t     channels    = 0;
    int64_t     n_classes   = 0;
    std::string pooling     = "cls";               // input of the classifier: the class token;
                                                   // "mean" of the patches, without a class token;
                                                   // "avg": the same beside a class token
    bool                     norm_pooled = false;  // the last norm follows pooling (timm's fc_norm)
    bool                     layer_scale = false;  // a factor per channel on each residual branch
    bool                     pre_norm    = false;  // a norm before the first block (CLIP)
    std::vector<float>       image_mean;           // per channel, of pixels in [0, 1]; empty until
    std::vector<float>       image_std;            // training measures them
    float                    image_crop   = 0.0f;  // fraction of the shorter side inside the crop
    int64_t                  image_stored = 0;     // shorter side after the first resize
    std::vector<std::string> class_names;          // empty, or n_classes of them

    int64_t head_dim() const { return head_size > 0 ? head_size : n_embd / n_head; }  // D
    int64_t width() const { return image_width > 0 ? image_width : image_size; }  // of a picture
    int64_t n_patches() const { return (image_size / patch_size) * (width() / patch_size); }
    bool    has_class_token() const { return pooling != "mean"; }
    int64_t n_positions() const { return n_patches() + (has_class_token() ? 1 : 0); }
};

}  // namespace gt
