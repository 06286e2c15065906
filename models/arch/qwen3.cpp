// models/arch/qwen3.cpp — Qwen3 (dense): a Llama with RMSNorm of every query and key head.
#include "models/arch/decoder.h"

namespace gt {

Arch qwen3_arch() {
    constexpr DecoderKind kKind{.neox = true, .qk_norm = true};
    ModelConfig           c = text_config("qwen3", {});
    c.norm_eps              = 1e-6f;
    c.rope.freq_base        = 1e6f;
    return decoder_arch<kKind>(c);
}

}  // namespace gt
