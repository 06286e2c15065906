// models/qwen2.cpp — Qwen2 and Qwen2.5: a Llama with biases of queries, keys and values.
#include "models/decoder.h"

namespace gt {

Arch qwen2_arch() {
    constexpr DecoderKind kKind{.neox = true};
    ModelConfig           c = text_config("qwen2", {});
    c.biases                = {"attn_q", "attn_k", "attn_v"};
    c.norm_eps              = 1e-6f;
    c.rope.freq_base        = 1e6f;
    return decoder_arch<kKind>(c);
}

}  // namespace gt
