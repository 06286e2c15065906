#include "models/presets.h"

namespace gt {

std::vector<Preset> presets() {
    std::vector<Preset> all;
    for (const Arch & arch : architectures()) {
        all.insert(all.end(), arch.presets.begin(), arch.presets.end());
    }
    return all;
}

Preset find_preset(const std::string & name) {
    std::string names;
    for (const Preset & preset : presets()) {
        if (name == preset.name) {
            return preset;
        }
        names += (names.empty() ? "" : ", ") + preset.name;
    }
    throw Error("no preset \"" + name + "\"; known presets: " + names);
}

static ModelConfig without_preset(const ModelSizes & sizes) {
    const Arch & arch = find_arch(sizes.arch);

    const std::pair<const char *, int64_t> needed[] = {
        {"layers", sizes.layers},
        {"width", sizes.width},
        {"heads", sizes.heads},
        arch.takes == Takes::images ? std::pair{"classes", sizes.classes}
                                    : std::pair{"context", sizes.context},
    };
    for (const auto & [name, value] : needed) {
        if (value == 0) {
            throw Error(std::string("--") + name + " is missing; it is required without --preset");
        }
    }
    return arch.defaults;
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
    if (sizes.width != 0) {
        c.n_ff = find_arch(c.arch).mlp_width(c.n_embd);
    }
    set(sizes.mlp, c.n_ff);
    set(sizes.context, c.n_ctx);
    set(sizes.classes, c.n_classes);
    set(sizes.image, c.image_size);
    set(sizes.image_width, c.image_width);
    set(sizes.patch, c.patch_size);
    set(sizes.channels, c.channels);
    c.pooling        = sizes.pooling.empty() ? c.pooling : sizes.pooling;
    c.rope.freq_base = sizes.rope_base != 0.0f ? sizes.rope_base : c.rope.freq_base;
    c.tied           = c.tied && !sizes.untied;
    return c;
}

}  // namespace gt
