#include "models/presets.h"

namespace gt {

namespace {

struct TextSizes {
    int64_t layers, width, heads, kv_heads, mlp, context;
};

ModelConfig gpt2(const TextSizes & s) {
    ModelConfig c;
    c.arch      = "gpt2";
    c.n_layer   = s.layers;
    c.n_embd    = s.width;
    c.n_head    = s.heads;
    c.n_head_kv = s.heads;
    c.n_ff      = s.mlp;
    c.n_ctx     = s.context;
    c.norm_eps  = 1e-5f;
    c.tied      = true;
    return c;
}

ModelConfig llama(const TextSizes & s) {
    ModelConfig c = gpt2(s);
    c.arch        = "llama";
    c.n_head_kv   = s.kv_heads;
    c.tied        = s.width < 2048;  // small models gain by sharing; large ones need not
    return c;
}

struct ImageSizes {
    int64_t layers, width, heads, image, patch;
};

ModelConfig vit(const ImageSizes & s) {
    ModelConfig c;
    c.arch       = "vit";
    c.n_layer    = s.layers;
    c.n_embd     = s.width;
    c.n_head     = s.heads;
    c.n_head_kv  = s.heads;
    c.n_ff       = 4 * s.width;
    c.norm_eps   = 1e-6f;
    c.image_size = s.image;
    c.patch_size = s.patch;
    c.channels   = 3;
    c.n_classes  = 10;
    return c;  // mean and deviation of the pictures: train-vit measures them
}

}  // namespace

const std::vector<Preset> & presets() {
    // text: layers, width, heads, key-value heads, mlp, context; vit: layers, width, heads, image, patch
    static const std::vector<Preset> table = {
        {"gpt-tiny", "bytes", "0.8M bytes: learns words in minutes",
         gpt2({4, 128, 4, 4, 512, 128})},
        {"gpt-10m", "bytes", "10M bytes: readable sentences in an hour",
         gpt2({6, 384, 6, 6, 1536, 256})},
        {"gpt2-124m", "gpt-2", "GPT-2 small", gpt2({12, 768, 12, 12, 3072, 1024})},
        {"gpt2-355m", "gpt-2", "GPT-2 medium", gpt2({24, 1024, 16, 16, 4096, 1024})},
        {"gpt2-774m", "gpt-2", "GPT-2 large", gpt2({36, 1280, 20, 20, 5120, 1024})},
        {"gpt2-1.5b", "gpt-2", "GPT-2 XL", gpt2({48, 1600, 25, 25, 6400, 1024})},
        {"llama-tiny", "bytes", "0.8M bytes: learns words in minutes",
         llama({4, 128, 4, 2, 352, 128})},
        {"llama-10m", "bytes", "10M bytes: readable sentences in an hour",
         llama({6, 384, 6, 6, 1024, 256})},
        {"llama-110m", "llama-spm", "as llama2.c's stories110M",
         llama({12, 768, 12, 12, 2048, 1024})},
        {"llama-300m", "llama-spm", "24 layers, grouped heads",
         llama({24, 1024, 16, 8, 2816, 2048})},
        {"llama-1b", "llama-spm", "as TinyLlama 1.1B", llama({22, 2048, 32, 4, 5632, 2048})},
        {"vit-micro", "", "0.8M: 32-pixel images", vit({4, 128, 4, 32, 4})},
        {"vit-tiny", "", "ViT-Ti/16 (DeiT)", vit({12, 192, 3, 224, 16})},
        {"vit-small", "", "ViT-S/16 (DeiT)", vit({12, 384, 6, 224, 16})},
        {"vit-base", "", "ViT-B/16", vit({12, 768, 12, 224, 16})},
    };
    return table;
}

const Preset & find_preset(const std::string & name) {
    std::string names;
    for (const Preset & preset : presets()) {
        if (name == preset.name) {
            return preset;
        }
        names += std::string(names.empty() ? "" : ", ") + preset.name;
    }
    throw Error("no preset \"" + name + "\"; there are " + names);
}

static ModelConfig without_preset(const ModelSizes & sizes) {
    ModelConfig c;
    if (sizes.arch == "vit") {
        c = vit({0, 0, 0, 224, 16});
    } else {
        c      = sizes.arch == "llama" ? llama({}) : gpt2({});
        c.tied = true;
    }
    const std::pair<const char *, int64_t> needed[] = {
        {"layers", sizes.layers},
        {"width", sizes.width},
        {"heads", sizes.heads},
        sizes.arch == "vit" ? std::pair{"classes", sizes.classes}
                            : std::pair{"context", sizes.context},
    };
    for (const auto & [name, value] : needed) {
        if (value == 0) {
            throw Error(
                std::string("--") + name + " is missing: without a preset all sizes must be given"
            );
        }
    }
    return c;
}

ModelConfig sized_config(const std::string & preset, const ModelSizes & sizes) {
    ModelConfig c = preset.empty() ? without_preset(sizes) : find_preset(preset).config;
    if (!preset.empty() && !sizes.arch.empty() && sizes.arch != c.arch) {
        throw Error(
            "--arch " + sizes.arch + " contradicts --preset " + preset + ", which is " + c.arch
        );
    }
    const auto set = [](int64_t value, int64_t & field) { field = value != 0 ? value : field; };
    set(sizes.layers, c.n_layer);
    set(sizes.width, c.n_embd);
    set(sizes.heads, c.n_head);
    if (sizes.heads != 0) {
        c.n_head_kv = c.n_head;
    }
    set(sizes.kv_heads, c.n_head_kv);
    if (sizes.width != 0) {  // llama: two thirds of four times the width, in steps of 32
        c.n_ff = c.arch == "llama" ? (8 * c.n_embd / 3 + 31) / 32 * 32 : 4 * c.n_embd;
    }
    set(sizes.mlp, c.n_ff);
    set(sizes.context, c.n_ctx);
    set(sizes.classes, c.n_classes);
    set(sizes.image, c.image_size);
    set(sizes.patch, c.patch_size);
    set(sizes.channels, c.channels);
    c.pooling        = sizes.pooling.empty() ? c.pooling : sizes.pooling;
    c.rope_freq_base = sizes.rope_base != 0.0f ? sizes.rope_base : c.rope_freq_base;
    c.tied           = c.tied && !sizes.untied;
    return c;
}

}  // namespace gt
