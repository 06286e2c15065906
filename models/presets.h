// models/presets.h — named sizes, and sizes from flags. The presets are part of each architecture's row.
#pragma once

#include "models/arch.h"

namespace gt {

// Presets of all architectures.
std::vector<Preset> presets();

// Throws an Error that lists the known names.
Preset find_preset(const std::string & name);

// Sizes from the command line; 0 or empty: the preset's.
struct ModelSizes {
    std::string arch, pooling;
    int64_t     layers = 0, width = 0, heads = 0, kv_heads = 0, mlp = 0, context = 0;
    int64_t     classes = 0, image = 0, image_width = 0, patch = 0, channels = 0;
    float       rope_base = 0.0f;
    bool        untied    = false;

    template <class Visit>
    void visit(Visit && visit) {
        visit("arch", arch, "architecture; required without --preset", arch_names());
        visit("layers", layers, "number of blocks", {}, 1, 1e9);
        visit("width", width, "embedding width; sets --mlp unless that is given", {}, 1, 1e9);
        visit("heads", heads, "attention heads", {}, 1, 1e9);
        visit("kv-heads", kv_heads, "key and value heads (text, not gpt2)", {}, 1, 1e9);
        visit("mlp", mlp, "width inside the MLP", {}, 1, 1e9);
        visit("context,c", context, "longest sequence, in tokens (text)", {}, 1, 1e9);
        visit("rope-base", rope_base, "base of the RoPE frequencies (text, not gpt2)");
        visit("untied", untied, "use an output matrix separate from the token embedding (text)");
        visit("classes", classes, "number of classes (images)", {}, 1, 1e9);
        visit("image", image, "height and width of an image, in pixels", {}, 1, 1e9);
        visit("image-width", image_width, "width, if it is not the height", {}, 1, 1e9);
        visit("patch", patch, "height and width of a patch, in pixels", {}, 1, 1e9);
        visit("channels", channels, "3: color, 1: grayscale (images)", {}, 1, 1e9);
        visit("pooling", pooling, "input of the classifier: class token or mean", {"cls", "mean"});
    }
};

// The preset (empty: the architecture's defaults) with these sizes; n_vocab stays 0. Throws an Error
// that names a missing size or a contradiction.
ModelConfig sized_config(const std::string & preset, const ModelSizes & sizes);

}  // namespace gt
