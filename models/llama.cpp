// models/llama.cpp — Llama: RoPE, RMSNorm, SwiGLU, grouped heads. Runs in llama.cpp.
#include "models/arch-parts.h"
#include "models/blocks.h"

namespace gt {

namespace {

class Llama : public Transformer {
public:
    using Transformer::Transformer;

    ggml_tensor * embed(Ops & ops, const Inputs & in) override {
        return ops.embedding(w("token_embd.weight"), in.tokens, nullptr, in.T);
    }

    ggml_tensor * block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) override {
        const std::string at   = format("blk.%d.", i);
        const auto        name = [&](const char * what) { return w(at + what + ".weight"); };
        const int64_t     H = config_.n_head, Hkv = config_.n_head_kv, D = config_.head_dim();

        ggml_tensor * h = rms_norm(ops, x, at + "attn_norm");                 // [C, T*B]
        h = ops.linear(h, {name("attn_q"), name("attn_k"), name("attn_v")});  // [(H+2Hkv)D, T*B]
        // RoPE rotates queries and keys, not values
        h = ops.rope(h, in.T, H + 2 * Hkv, H + Hkv, D, config_.rope_freq_base);
        h = ops.attention(h, attention_shape(in.T, true));  // [H D, T*B]
        x = ops.linear(h, {name("attn_output")}, {}, x);    // [C, T*B]

        h                  = rms_norm(ops, x, at + "ffn_norm");              // [C, T*B]
        ggml_tensor * gate = ops.linear(h, {name("ffn_gate")});              // [F, T*B]
        ggml_tensor * up   = ops.linear(h, {name("ffn_up")});                // [F, T*B]
        return ops.linear(ops.swiglu(gate, up), {name("ffn_down")}, {}, x);  // [C, T*B]
    }

    Head head(Ops & ops, const Inputs &, ggml_tensor * x) override {
        return {.x = rms_norm(ops, x, "output_norm"), .weight = &token_output()};
    }
};

void tensors(const ModelConfig & c, SpecList & list) {
    const int64_t C = c.n_embd, F = c.n_ff, kv = c.n_head_kv * c.head_dim();
    list.token_table(c);
    for (int64_t l = 0; l < c.n_layer; ++l) {
        const std::string blk = "blk." + std::to_string(l) + ".";
        list.norm(blk + "attn_norm", C, false);
        list.linear(blk + "attn_q", {C, C, 1, 1}, false);
        list.linear(blk + "attn_k", {C, kv, 1, 1}, false);
        list.linear(blk + "attn_v", {C, kv, 1, 1}, false);
        list.linear(blk + "attn_output", {C, C, 1, 1}, false, list.out_std);
        list.norm(blk + "ffn_norm", C, false);
        list.linear(blk + "ffn_gate", {C, F, 1, 1}, false);
        list.linear(blk + "ffn_up", {C, F, 1, 1}, false);
        list.linear(blk + "ffn_down", {F, C, 1, 1}, false, list.out_std);
    }
    list.norm("output_norm", C, false);
    list.token_output(c);
}

constexpr const char * kEps = "attention.layer_norm_rms_epsilon";

void read_keys(const KeyReader & in, ModelConfig & c) {
    in.read_text(c);
    c.norm_eps       = in.need_float(kEps);
    c.rope_freq_base = in.get_float("rope.freq_base", 10000.0f);

    // variants of Llama that this graph does not compute
    const int64_t D     = c.n_head > 0 ? c.n_embd / c.n_head : 0;
    const auto    other = [&](const char * key) { return in.find_int(key).value_or(D) != D; };
    in.refuse(other("rope.dimension_count"), "partial RoPE");
    in.refuse(other("attention.key_length"), "heads wider than width / heads");
    in.refuse(other("attention.value_length"), "heads wider than width / heads");
    in.refuse(in.find_int("expert_count").value_or(0) != 0, "experts");
    in.refuse(in.has_tensor("rope_freqs.weight"), "scaled RoPE frequencies (rope_freqs)");
    in.refuse(in.get_string("rope.scaling.type", "none") != "none", "RoPE scaling");
}

void write_keys(const ModelConfig & c, const KeyWriter & out) {
    out.write_text(c);
    out.set_float(kEps, c.norm_eps);
    out.set_float("rope.freq_base", c.rope_freq_base);
    out.set_int("rope.dimension_count", c.head_dim());
}

void check(const ModelConfig & c, const Checks & checks) {
    if (c.head_dim() % 2 != 0) {
        checks.fail(c.arch + " needs an even head size (width / heads): RoPE rotates pairs");
    }
    if (!(c.rope_freq_base > 1.0f)) {
        checks.fail(format("RoPE frequency base is %g; it must be above 1", c.rope_freq_base));
    }
}

ModelConfig sized(const TextSizes & sizes) {
    ModelConfig c = text_config("llama", sizes);
    c.tied        = sizes.width < 2048;  // small models gain by tying, large ones need not
    return c;
}

}  // namespace

Arch llama_arch() {
    return {
        .name  = "llama",
        .takes = Takes::text,
        .presets =
            // layers, width, heads, key-value heads, MLP, context
        {{"llama-tiny", "bytes", "0.8M bytes: learns words in minutes",
          sized({4, 128, 4, 2, 352, 128})},
         {"llama-10m", "bytes", "10M bytes: readable sentences in an hour",
          sized({6, 384, 6, 6, 1024, 256})},
         {"llama-110m", "llama-spm", "as llama2.c's stories110M",
          sized({12, 768, 12, 12, 2048, 1024})},
         {"llama-300m", "llama-spm", "24 layers, grouped heads",
          sized({24, 1024, 16, 8, 2816, 2048})},
         {"llama-1b", "llama-spm", "as TinyLlama 1.1B", sized({22, 2048, 32, 4, 5632, 2048})}},
        .defaults = sized({}),
        // two thirds of four times the width, rounded up to a multiple of 32
        .mlp_width  = [](int64_t width) { return (8 * width / 3 + 31) / 32 * 32; },
        .tensors    = tensors,
        .read_keys  = read_keys,
        .write_keys = write_keys,
        .check      = check,
        .make       = make_transformer<Llama>};
}

}  // namespace gt
