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

// Sizes of one's own: what is 0 or empty is the preset's.
struct ModelSizes {
    std::string arch, pooling;
    int64_t     layers = 0, width = 0, heads = 0, kv_heads = 0, mlp = 0, context = 0;
    int64_t     classes = 0, image = 0, patch = 0, channels = 0;
    float       rope_base = 0.0f;
    bool        untied    = false;

    template <class Visit>
    void visit(Visit && visit) {
        visit("arch", arch, "architecture, where no preset is given", {"gpt2", "llama", "vit"});
        visit("layers", layers, "blocks");
        visit("width", width, "channels; the mlp follows unless it is given");
        visit("heads", heads, "attention heads");
        visit("kv-heads", kv_heads, "llama: heads of keys and values");
        visit("mlp", mlp, "width inside the mlp");
        visit("context", context, "longest sequence");
        visit("rope-base", rope_base, "llama: base of the RoPE frequencies");
        visit("untied", untied, "an output matrix of its own, not the token embedding");
        visit("classes", classes, "vit: number of classes");
        visit("image", image, "vit: height and width of a picture");
        visit("patch", patch, "vit: height and width of a patch");
        visit("channels", channels, "vit: 3: colours, 1: grey");
        visit("pooling", pooling, "vit: what the classifier sees", {"cls", "mean"});
    }
};

// The preset (empty: none, then all sizes that matter must be there) with these sizes. n_vocab
// stays 0. An Error names what is missing or contradicts itself.
ModelConfig sized_config(const std::string & preset, const ModelSizes & sizes);

}  // namespace gt
