#include "models/decoder.h"

#include <algorithm>
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

// [(H+2Hkv)D, T*B]
ggml_tensor *
Decoder::queries_keys_values(Ops & ops, const std::string & at, ggml_tensor * h) const {
    ggml_tensor * fused = config_.fused_qkv ? linear(ops, h, at, {"attn_qkv"}) : nullptr;
    if (!kind_.qk_norm) {
        return fused ? fused : linear(ops, h, at, {"attn_q", "attn_k", "attn_v"});
    }
    ggml_context * ctx  = ops.ctx();
    const int64_t  D    = config_.head_dim();
    const auto     part = [&](const char * matrix, int64_t begin, int64_t n_heads) {
        if (!fused) {
            return linear(ops, h, at, {matrix});
        }
        const size_t offset = static_cast<size_t>(begin * D) * sizeof(float);
        return ggml_cont(
                ctx, ggml_view_2d(ctx, fused, n_heads * D, fused->ne[1], fused->nb[1], offset)
            );
    };
    const auto normed = [&](ggml_tensor * y, const char * norm) {
        ggml_tensor * heads = ggml_reshape_2d(ctx, y, D, ggml_nelements(y) / D);
        return ggml_reshape(ctx, rms_norm(ops, heads, at + norm), y);
    };
    const int64_t H = config_.n_head, Hkv = config_.n_head_kv;
    ggml_tensor * q = normed(part("attn_q", 0, H), "attn_q_norm");    // [H D, T*B]
    ggml_tensor * k = normed(part("attn_k", H, Hkv), "attn_k_norm");  // [Hkv D, T*B]
    return ggml_concat(ctx, ggml_concat(ctx, q, k, 0), part("attn_v", H + Hkv, Hkv), 0);
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

static constexpr float        kStd        = 0.02f;  // of initial weights
static constexpr const char * kMatrices[] = {"attn_qkv",    "attn_q",   "attn_k", "attn_v",
                                             "attn_output", "ffn_gate", "ffn_up", "ffn_down"};

static bool has_bias(const ModelConfig & c, const char * matrix) {
    return std::find(c.biases.begin(), c.biases.end(), matrix) != c.biases.end();
}

void decoder_tensors(const ModelConfig & c, DecoderKind kind, SpecList & list) {
    const int64_t C = c.n_embd, F = c.n_ff, D = c.head_dim();
    const int64_t q = c.n_head * D, kv = c.n_head_kv * D;
    list.token_table(c);
    for (int64_t l = 0; l < c.n_layer; ++l) {
        const std::string blk    = "blk." + std::to_string(l) + ".";
        const auto        linear = [&](const char * matrix, int64_t K, int64_t M, float std) {
            list.linear(blk + matrix, {K, M, 1, 1}, has_bias(c, matrix), std);
        };
        list.norm(blk + "attn_norm", C, false);
        if (c.fused_qkv) {
            linear("attn_qkv", C, q + 2 * kv, kStd);
        } else {
            linear("attn_q", C, q, kStd);
            linear("attn_k", C, kv, kStd);
            linear("attn_v", C, kv, kStd);
        }
        if (kind.qk_norm) {
            list.norm(blk + "attn_q_norm", D, false);
            list.norm(blk + "attn_k_norm", D, false);
        }
        linear("attn_output", q, C, list.out_std);
        if (kind.gemma) {
            list.norm(blk + "post_attention_norm", C, false);
        }
        list.norm(blk + "ffn_norm", C, false);
        linear("ffn_gate", C, F, kStd);
        linear("ffn_up", C, F, kStd);
        linear("ffn_down", F, C, list.out_std);
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

// Which layers have a window: all but every n-th, as n or as a flag per layer.
static int64_t read_window_pattern(const KeyReader & in, const ModelConfig & c) {
    const std::vector<int64_t> flags = in.get_ints(kWindowEvery);
    if (flags.size() <= 1) {
        return flags.empty() ? c.window_every : flags[0];
    }
    const auto n = std::find(flags.begin(), flags.end(), 0) - flags.begin() + 1;
    for (int64_t i = 0; i < static_cast<int64_t>(flags.size()); ++i) {
        in.refuse(
            (flags[static_cast<size_t>(i)] == 0) != ((i + 1) % n == 0),
            "windows of attention in an order without a period"
        );
    }
    return n;
}

void decoder_read_keys(const KeyReader & in, DecoderKind kind, ModelConfig & c) {
    in.read_text(c);
    c.norm_eps = in.need_float(kEps);
    c.rope     = read_rope(in);

    const int64_t usual = c.n_head > 0 ? c.n_embd / c.n_head : 0;
    const int64_t D     = in.find_int("attention.key_length").value_or(usual);
    c.head_size         = D == usual ? 0 : D;

    const std::string fused = "blk.0.attn_qkv.weight";  // in an adapter's file there is its A
    c.fused_qkv             = in.has_tensor(fused) || in.has_tensor(fused + ".lora_a");
    for (const char * matrix : kMatrices) {
        if (in.has_tensor(std::string("blk.0.") + matrix + ".bias")) {
            c.biases.emplace_back(matrix);
        }
    }

    if (kind.gemma) {
        c.window           = in.find_int(kWindow).value_or(0);
        c.window_every     = read_window_pattern(in, c);
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
