// models/convert/vit-config.h — what config.json beside a model's tensors says: timm's or Hugging Face's.
#pragma once

#include "models/model-config.h"

namespace gt {

// Fields that the files do not have are 0 or empty.
struct VitConfig {
    std::string              path;  // of config.json, for messages; empty: there is none
    std::string              name;  // timm's name of the architecture
    int64_t                  heads = 0, image_height = 0, image_width = 0;
    float                    norm_eps = 0.0f;
    std::string              pooling;     // timm's global_pool: "token", "avg", "map"
    std::string              activation;  // "gelu" and others
    std::vector<float>       mean, deviation;
    float                    crop = 0.0f;
    std::vector<std::string> class_names;
};

// Reads config.json (and Hugging Face's preprocessor_config.json) in the folder of the file `model`. Throws an
// Error if one of them is not JSON.
VitConfig read_vit_config(const std::string & model);

// timm's config.json for a model of ours, in one line. timm.create_model takes `architecture` with `model_args`.
std::string timm_config_text(const ModelConfig & config);

}  // namespace gt
