// models/arch/llama.cpp — Llama (1 to 3.x), Mistral, TinyLlama, SmolLM2: what llama.cpp calls "llama".
#include "models/arch/decoder.h"

namespace gt {

static ModelConfig sized(const TextSizes & sizes) {
    ModelConfig c = text_config("llama", sizes);
    c.tied        = sizes.width < 2048;  // small models gain by tying, large ones need not
    return c;
}

Arch llama_arch() {
    constexpr DecoderKind kKind{.factors = true};
    Arch                  arch = decoder_arch<kKind>(sized({}));
    // layers, width, heads, key-value heads, MLP, context
    arch.presets = {
        {"llama-tiny", "bytes", "bytes: words in minutes", sized({4, 128, 4, 2, 352, 128})},
        {"llama-10m", "bytes", "bytes: sentences in an hour", sized({6, 384, 6, 6, 1024, 256})},
        {"llama-110m", "llama-spm", "as llama2.c's stories110M",
         sized({12, 768, 12, 12, 2048, 1024})},
        {"llama-300m", "llama-spm", "24 layers, grouped heads",
         sized({24, 1024, 16, 8, 2816, 2048})},
        {"llama-1b", "llama-spm", "as TinyLlama 1.1B", sized({22, 2048, 32, 4, 5632, 2048})}};
    return arch;
}

}  // namespace gt
