// models/arch/gemma3.cpp — Gemma 3 (text): most layers see a window of tokens only, with another RoPE base.
#include "models/arch/decoder.h"

namespace gt {

Arch gemma3_arch() {
    constexpr DecoderKind kKind{.neox = true, .qk_norm = true, .gemma = true};
    ModelConfig           c = text_config("gemma3", {});
    c.norm_eps              = 1e-6f;
    c.rope.freq_base        = 1e6f;
    c.window                = 512;
    return decoder_arch<kKind>(c);
}

}  // namespace gt
