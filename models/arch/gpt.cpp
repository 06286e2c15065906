// models/arch/gpt.cpp — GPT-2: learned positions, LayerNorm, tanh GELU, tied output. Runs in llama.cpp.
#include "models/arch-parts.h"
#include "models/blocks.h"

namespace gt {

namespace {

class Gpt : public Transformer {
public:
    using Transformer::Transformer;

    ggml_tensor * embed(Ops & ops, const Inputs & in) override {
        ggml_tensor *words = w("token_embd.weight"), *places = w("position_embd.weight");
        if (!in.positions) {
            return ops.embedding(words, in.tokens, places, in.T);
        }
        return ggml_add(
            ops.ctx(), ops.embedding(words, in.tokens, nullptr, in.T),
            ops.embedding(places, in.positions, nullptr, in.T)
        );
    }

    ggml_tensor * block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) override {
        const std::string at = format("blk.%d.", i);

        ggml_tensor * h = layer_norm(ops, x, at + "attn_norm");                         // [C, T*B]
        h               = linear(ops, h, at, {"attn_qkv"});                             // [3C, T*B]
        h               = ops.attention(h, attention_shape(in.T, true, in.positions));  // [C, T*B]
        x               = linear(ops, h, at, {"attn_output"}, x);                       // [C, T*B]

        h = layer_norm(ops, x, at + "ffn_norm");                       // [C, T*B]
        h = ops.gelu(linear(ops, h, at, {"ffn_up"}), GeluKind::tanh);  // [F, T*B]
        return linear(ops, h, at, {"ffn_down"}, x);                    // [C, T*B]
    }

    Head head(Ops & ops, const Inputs &, ggml_tensor * x) override {
        return {.x = layer_norm(ops, x, "output_norm"), .weight = &token_output()};
    }
};

void tensors(const ModelConfig & c, SpecList & list) {
    const int64_t C = c.n_embd, F = c.n_ff;
    list.token_table(c);
    list.table("position_embd", {C, c.n_ctx, 1, 1});
    for (int64_t l = 0; l < c.n_layer; ++l) {
        const std::string blk = "blk." + std::to_string(l) + ".";
        list.norm(blk + "attn_norm", C, true);
        list.linear(blk + "attn_qkv", {C, 3 * C, 1, 1}, true);  // rows: Q, K, V
        list.linear(blk + "attn_output", {C, C, 1, 1}, true, list.out_std);
        list.norm(blk + "ffn_norm", C, true);
        list.linear(blk + "ffn_up", {C, F, 1, 1}, true);
        list.linear(blk + "ffn_down", {F, C, 1, 1}, true, list.out_std);
    }
    list.norm("output_norm", C, true);
    list.token_output(c);
}

constexpr const char * kEps = "attention.layer_norm_epsilon";

void read_keys(const KeyReader & in, ModelConfig & c) {
    in.read_text(c);
    c.norm_eps = in.need_float(kEps);
}

void write_keys(const ModelConfig & c, const KeyWriter & out) {
    out.write_text(c);
    out.set_float(kEps, c.norm_eps);
}

void check(const ModelConfig & c, const Checks & checks) {
    if (c.n_head_kv != c.n_head) {
        checks.fail(c.arch + " has as many key-value heads as heads; use llama for grouped heads");
    }
}

ModelConfig sized(int64_t layers, int64_t width, int64_t heads, int64_t context) {
    return text_config("gpt2", {layers, width, heads, heads, 4 * width, context});
}

}  // namespace

Arch gpt_arch() {
    return {
        .name  = "gpt2",
        .takes = Takes::text,
        .presets =
            {{"gpt-tiny", "bytes", "bytes: words in minutes", sized(4, 128, 4, 128)},
             {"gpt-10m", "bytes", "bytes: sentences in an hour", sized(6, 384, 6, 256)},
             {"gpt2-124m", "gpt-2", "GPT-2 small", sized(12, 768, 12, 1024)},
             {"gpt2-355m", "gpt-2", "GPT-2 medium", sized(24, 1024, 16, 1024)},
             {"gpt2-774m", "gpt-2", "GPT-2 large", sized(36, 1280, 20, 1024)},
             {"gpt2-1.5b", "gpt-2", "GPT-2 XL", sized(48, 1600, 25, 1024)}},
        .defaults          = sized(0, 0, 0, 0),
        .mlp_width         = [](int64_t width) { return 4 * width; },
        .ties_equal_output = true,  // some converters store the output matrix twice
        .tensors           = tensors,
        .read_keys         = read_keys,
        .write_keys        = write_keys,
        .check             = check,
        .make              = make_transformer<Gpt>};
}

}  // namespace gt
