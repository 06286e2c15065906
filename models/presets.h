// models/presets.h — named sizes; the only table of them.
#pragma once

#include "ggml-train/model-config.h"

namespace gt {

struct Preset {
    const char * name;
    const char * tokenizer;  // "bytes", a vocabulary's name (see tokenizer.h), or "" for vit
    const char * help;
    ModelConfig  config;  // text: n_vocab is 0 until a tokenizer is chosen
};

const std::vector<Preset> & presets();

// Throws an Error that lists the names there are.
const Preset & find_preset(const std::string & name);

}  // namespace gt
