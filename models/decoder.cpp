#include "models/decoder.h"

#include <cmath>

namespace gt {

Decoder::Decoder(
    const Backend & backend, const ModelConfig & config, bool with_grads, DecoderKind kind
)
    : Transformer(backend, config, with_grads), kind_(kind) {
    const auto table = [&](const RopeConfig & rope, int64_t T) {
        const auto values = rope_divisors(rope, config.head_dim(), config.n_ctx, T);
        return weights_.add_constant(backend, values);
    };
    divisors_      = table(config.rope, 1);
    long_divisors_ = divisors_;
    if (!config.rope.factors_long.empty()) {
        long_divisors_ = table(config.rope, config.n_ctx + 1);
    }
    RopeConfig plain;
    plain.freq_base  = config.window_rope_base;
    window_divisors_ = config.window > 0 ? table(plain, 1) : nullptr;
}

bool Decoder::has_window(int block) const {
    return config_.window > 0 && (block + 1) % config_.window_every != 0;
}

Rope Decoder::rope_of(int block, int64_t T) const {
    if (has_window(block)) {
        return {.divisors = window_divisors_, .neox = kind_.neox};
    }
    const int64_t n_orig = config_.rope.n_ctx_orig > 0 ? config_.rope.n_ctx_orig : config_.n_ctx;
    return {
        .divisors = T > n_orig ? long_divisors_ : divisors_,
        .scale    = rope_scale(config_.rope),
        .neox     = kind_.neox};
}

ggml_tensor * Decoder::embed(Ops & ops, const Inputs & in) {
    ggml_tensor * x = ops.embedding(w("token_embd.weight"), in.tokens, nullptr, in.T);
    return kind_.gemma ? ggml_scale(ops.ctx(), x, std::sqrt(static_cast<float>(config_.n_embd)))
                       : x;
}

ggml_tensor *
Decoder::queries_keys_values(Ops & ops, const std::string & at, ggml_tensor * h) const {
    if (!kind_.qk_norm) {
        return linear(ops, h, at, {"attn_q", "attn_k", "attn_v"});  // [(H+2Hkv)D, T*B]
    }
    ggml_context * ctx    = ops.ctx();
    const auto     normed = [&](const char * matrix, const char * norm) {
        ggml_tensor * y     = linear(ops, h, at, {matrix});
        const int64_t D     = config_.head_dim();
        ggml_tensor * heads = ggml_reshape_2d(ctx, y, D, ggml_nelements(y) / D);
        return ggml_reshape(ctx, rms_norm(ops, heads, at + norm), y);
    };
    ggml_tensor * q = normed("attn_q", "attn_q_norm");  // [H D, T*B]
    ggml_tensor * k = normed("attn_k", "attn_k_norm");  // [Hkv D, T*B]
    return ggml_concat(ctx, ggml_concat(ctx, q, k, 0), linear(ops, h, at, {"attn_v"}), 0);
}

// The residual stream x with what attention or MLP add: h through a matrix, and a norm if there is one.
ggml_tensor * Decoder::add_branch(
    Ops &               ops,
    ggml_tensor *       x,
    ggml_tensor *       h,
    const std::string & at,
    const char *        matrix,
    const char *        norm
) const {
    if (!kind_.gemma) {
        return linear(ops, h, at, {matrix}, x);
    }
    return ggml_add(ops.ctx(), rms_norm(ops, linear(ops, h, at, {matrix}), at + norm), x);
}

ggml_tensor * Decoder::block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) {
    const std::string at = format("blk.%d.", i);
    const int64_t     H = config_.n_head, Hkv = config_.n_head_kv, D = config_.head_dim();
    AttentionShape    attention = attention_shape(in.T, true, in.positions);
    attention.window            = has_window(i) ? config_.window : 0;

    ggml_tensor * h = rms_norm(ops, x, at + "attn_norm");  // [C, T*B]
    h               = queries_keys_values(ops, at, h);     // [(H+2Hkv)D, T*B]
    // queries and keys, not values; only distances matter, so that segments need no angles of their own
    h = ops.rope(h, in.T, H + 2 * Hkv, H + Hkv, D, rope_of(i, in.T));
    h = ops.attention(h, attention);                                      // [H D, T*B]
    x = add_branch(ops, x, h, at, "attn_output", "post_attention_norm");  // [C, T*B]

    h                  = rms_norm(ops, x, at + "ffn_norm");  // [C, T*B]
    ggml_tensor * gate = linear(ops, h, at, {"ffn_gate"});   // [F, T*B]
    ggml_tensor * up   = linear(ops, h, at, {"ffn_up"});     // [F, T*B]
    h                  = kind_.gemma ? ggml_mul(ops.ctx(), ops.gelu(gate, GeluKind::tanh), up)
                                     : ops.swiglu(gate, up);
    return add_branch(ops, x, h, at, "ffn_down", "post_ffw_norm");  // [C, T*B]
}

Head Decoder::head(Ops & ops, const Inputs &, ggml_tensor * x) {
    return {.x = rms_norm(ops, x, "output_norm"), .weight = &token_output()};
}

void decoder_tensors(const ModelConfig & c, DecoderKind kind, SpecList & list) {
    const int64_t C = c.n_embd, F = c.n_ff, D = c.head_dim();
    const int64_t q = c.n_head * D, kv = c.n_head_kv * D;
    list.token_table(c);
    for (int64_t l = 0; l < c.n_layer; ++l) {
        const std::string blk = "blk." + std::to_string(l) + ".";
        list.norm(blk + "attn_norm", C, false);
        list.linear(blk + "attn_q", {C, q, 1, 1}, kind.qkv_bias);
        list.linear(blk + "attn_k", {C, kv, 1, 1}, kind.qkv_bias);
        list.linear(blk + "attn_v", {C, kv, 1, 1}, kind.qkv_bias);
        if (kind.qk_norm) {
            list.norm(blk + "attn_q_norm", D, false);
            list.norm(blk + "attn_k_norm", D, false);
        }
        list.linear(blk + "attn_output", {q, C, 1, 1}, false, list.out_std);
        if (kind.gemma) {
            list.norm(blk + "post_attention_norm", C, false);
        }
        list.norm(blk + "ffn_norm", C, false);
        list.linear(blk + "ffn_gate", {C, F, 1, 1}, false);
        list.linear(blk + "ffn_up", {C, F, 1, 1}, false);
        list.linear(blk + "ffn_down", {F, C, 1, 1}, false, list.out_std);
        if (kind.gemma) {
            list.norm(blk + "post_ffw_norm", C, false);
        }
    }
    list.norm("output_norm", C, false);
    list.token_output(c);
}

static constexpr const char * kEps         = "attention.layer_norm_rms_epsilon";
static constexpr const char * kWindow      = "attention.sliding_window";
static constexpr const char * kWindowEvery = "attention.sliding_window_pattern";
static constexpr const char * kWindowBase  = "rope.freq_base_swa";

void decoder_read_keys(const KeyReader & in, DecoderKind kind, ModelConfig & c) {
    in.read_text(c);
    c.norm_eps = in.need_float(kEps);
    c.rope     = read_rope(in);

    const int64_t usual = c.n_head > 0 ? c.n_embd / c.n_head : 0;
    const int64_t D     = in.find_int("attention.key_length").value_or(usual);
    c.head_size         = D == usual ? 0 : D;

    if (kind.gemma) {
        c.window           = in.find_int(kWindow).value_or(0);
        c.window_every     = in.find_int(kWindowEvery).value_or(c.window_every);
        c.window_rope_base = in.get_float(kWindowBase, c.window_rope_base);
    }

    // variants that this graph does not compute
    const auto other = [&](const char * key) { return in.find_int(key).value_or(D) != D; };
    in.refuse(other("rope.dimension_count"), "partial RoPE");
    in.refuse(other("attention.value_length"), "values of another size than keys");
    in.refuse(in.find_int("expert_count").value_or(0) != 0, "experts");
    in.refuse(
        !kind.factors && (in.has_tensor("rope_freqs.weight") || c.rope.scaling == "longrope"),
        "RoPE factors (rope_freqs)"
    );
    in.refuse(kind.gemma && c.n_layer == 62, "attention scores scaled as in Gemma 3 27B");
    in.refuse(in.get_float("final_logit_softcapping", 0.0f) != 0.0f, "logits with a soft cap");
}

void decoder_write_keys(const ModelConfig & c, const KeyWriter & out) {
    out.write_text(c);
    out.set_float(kEps, c.norm_eps);
    out.set_int("rope.dimension_count", c.head_dim());
    write_rope(c.rope, out);
    if (c.head_size > 0) {
        out.set_int("attention.key_length", c.head_size);
        out.set_int("attention.value_length", c.head_size);
    }
    if (c.window > 0) {
        out.set_int(kWindow, c.window);
        out.set_int(kWindowEvery, c.window_every);
        out.set_float(kWindowBase, c.window_rope_base);
    }
}

void decoder_check(const ModelConfig & c, const Checks & checks) {
    check_rope(c.rope, c.head_dim(), checks);
    if (c.window != 0) {
        checks.positive("the window of attention", c.window);
        checks.positive("the pattern of windows", c.window_every);
    }
}

}  // namespace gt
