#include "models/llama.h"

namespace gt {

ggml_tensor * Llama::embed(Ops & ops, const Inputs & in) {
    return ops.embedding(w("token_embd.weight"), in.tokens, nullptr, in.T);
}

ggml_tensor * Llama::block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) {
    const std::string at   = format("blk.%d.", i);
    const auto        name = [&](const char * what) { return w(at + what + ".weight"); };
    const int64_t     H = config_.n_head, Hkv = config_.n_head_kv, D = config_.head_dim();

    ggml_tensor * h = rms_norm(ops, x, at + "attn_norm");                 // [C, T*B]
    h = ops.linear(h, {name("attn_q"), name("attn_k"), name("attn_v")});  // [(H + 2 Hkv) D, T*B]
    h = ops.rope(
        h, in.T, H + 2 * Hkv, H + Hkv, D, config_.rope_freq_base
    );                                                  // queries and keys turn
    h = ops.attention(h, attention_shape(in.T, true));  // [H D, T*B]
    x = ops.linear(h, {name("attn_output")}, {}, x);    // [C, T*B]

    h                  = rms_norm(ops, x, at + "ffn_norm");              // [C, T*B]
    ggml_tensor * gate = ops.linear(h, {name("ffn_gate")});              // [F, T*B]
    ggml_tensor * up   = ops.linear(h, {name("ffn_up")});                // [F, T*B]
    return ops.linear(ops.swiglu(gate, up), {name("ffn_down")}, {}, x);  // [C, T*B]
}

Head Llama::head(Ops & ops, const Inputs &, ggml_tensor * x) {
    const char * output = config_.tied ? "token_embd.weight" : "output.weight";
    return {.x = rms_norm(ops, x, "output_norm"), .weight = &weights_.at(output)};
}

}  // namespace gt
