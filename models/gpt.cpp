#include "models/gpt.h"

namespace gt {

ggml_tensor * Gpt::embed(Ops & ops, const Inputs & in) {
    return ops.embedding(w("token_embd.weight"), in.tokens, w("position_embd.weight"), in.T);
}

ggml_tensor * Gpt::block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) {
    const std::string at  = format("blk.%d.", i);
    const auto        lin = [&](ggml_tensor * y, const char * name, ggml_tensor * residual) {
        return ops.linear(y, {w(at + name + ".weight")}, {w(at + name + ".bias")}, residual);
    };
    ggml_tensor * h = layer_norm(ops, x, at + "attn_norm");           // [C, T*B]
    h               = lin(h, "attn_qkv", nullptr);                    // [3C, T*B]
    h               = ops.attention(h, attention_shape(in.T, true));  // [C, T*B]
    x               = lin(h, "attn_output", x);                       // [C, T*B]

    h = layer_norm(ops, x, at + "ffn_norm");                  // [C, T*B]
    h = ops.gelu(lin(h, "ffn_up", nullptr), GeluKind::tanh);  // [F, T*B]
    return lin(h, "ffn_down", x);                             // [C, T*B]
}

Head Gpt::head(Ops & ops, const Inputs &, ggml_tensor * x) {
    const char * output = config_.tied ? "token_embd.weight" : "output.weight";
    return {.x = layer_norm(ops, x, "output_norm"), .weight = &weights_.at(output)};
}

}  // namespace gt
