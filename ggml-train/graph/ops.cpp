#include "ggml-train/graph/ops.h"

#include "ggml-train/cuda/table.h"
#include "ggml-train/device/backend.h"
#include "ggml-train/graph/autograd.h"

#include <cmath>

namespace gt {

static std::array<int64_t, 4> shape(const ggml_tensor * x, int64_t ne0) {
    return {ne0, x->ne[1], x->ne[2], x->ne[3]};
}

static int32_t as_int(int64_t n) {
    return static_cast<int32_t>(n);
}

constexpr float kGeluLinear = 2.0f * 0.79788456080286535588f;  // 2 sqrt(2/pi)
constexpr float kGeluCubic  = 0.044715f * kGeluLinear;

// y = x s, s = sigmoid(z):  y' = s + x z' (s - s^2), z' = kGeluLinear + 3 kGeluCubic x^2
static void rule_gelu_tanh(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_context * ctx   = a.ctx();
    ggml_tensor *  x     = a.value(y->src[0]);
    ggml_tensor *  s     = a.value(y->src[1]);
    ggml_tensor *  dz    = ggml_scale_bias(ctx, ggml_sqr(ctx, x), 3.0f * kGeluCubic, kGeluLinear);
    ggml_tensor *  bell  = ggml_sub(ctx, s, ggml_sqr(ctx, s));
    ggml_tensor *  slope = ggml_add(ctx, ggml_mul(ctx, ggml_mul(ctx, x, dz), bell), s);
    a.add(y->src[0], ggml_mul(ctx, slope, contiguous(a, g)));
}

ggml_tensor * Ops::leaf(int64_t ne0, int64_t ne1) {
    return ggml_new_tensor_2d(ctx_, GGML_TYPE_F32, ne0, ne1);
}

// GPUs before sm_80 have no products of BF16.
static bool multiplies(const Backend * backend, ggml_type type) {
    const Device * device = backend ? backend->device() : nullptr;
    return type != GGML_TYPE_BF16 || !device || device->kernels().has_tensor_cores();
}

Ops::Ops(ggml_context * ctx, Form form, ggml_type compute, const Backend * backend)
    : ctx_(ctx), form_(form), compute_(multiplies(backend, compute) ? compute : GGML_TYPE_F32),
      backend_(backend) {}

bool Ops::own_products() const {
    return form_ == Form::fused || (form_ == Form::device && compute_ != GGML_TYPE_F16);
}

bool Ops::runs(const ggml_tensor * node) const {
    // ggml's SOFT_MAX_BACK on the CPU reads values that it has overwritten if it works in place
    if (node->op == GGML_OP_SOFT_MAX_BACK && (!backend_ || backend_->is_host())) {
        return false;
    }
    return !backend_ || ggml_backend_supports_op(backend_->get(), node);
}

ggml_tensor * product(ggml_context * ctx, ggml_tensor * w, ggml_tensor * x) {
    ggml_tensor * y = ggml_mul_mat(ctx, w, x);
    if (w->type == GGML_TYPE_F16) {
        ggml_prec_set_acc(y, GGML_PREC_F32);
    }
    return y;
}

ggml_tensor * Ops::dequantized(ggml_tensor * w) {
    return ggml_is_quantized(w->type) ? ggml_cast(ctx_, w, GGML_TYPE_F32) : w;
}

ggml_tensor * Ops::factor(ggml_tensor * w) {
    w = dequantized(w);
    if (compute_ != GGML_TYPE_F32) {
        return w->type == compute_ ? w : keep(ggml_cast(ctx_, w, compute_));
    }
    if (w->type != GGML_TYPE_F32) {
        return ggml_cast(ctx_, w, GGML_TYPE_F32);
    }
    // a single column transposed is contiguous, yet refused by products
    return ggml_is_contiguous(w) && !ggml_is_transposed(w) ? w : ggml_cont(ctx_, w);
}

ggml_tensor * Ops::other_factor(ggml_tensor * x) {
    if (!rounds() || x->type == GGML_TYPE_BF16) {
        return x;
    }
    ggml_tensor *& factor = factors_[x];
    if (!factor) {
        // what is cheap writes BF16 itself
        const FusedOp * op = fused_op(x);
        factor             = op && op->cheap ? fused_as(ctx_, x, GGML_TYPE_BF16)
                                             : ggml_cast(ctx_, x, GGML_TYPE_BF16);
    }
    return factor;
}

ggml_tensor * Ops::linear(
    ggml_tensor *                      x,
    const std::vector<ggml_tensor *> & weights,
    const std::vector<ggml_tensor *> & biases,
    ggml_tensor *                      residual
) {
    if (own_products()) {
        std::vector<ggml_tensor *> args  = {other_factor(x)};
        int64_t                    width = 0;
        for (ggml_tensor * weight : weights) {
            args.push_back(form_ == Form::fused ? weight : factor(weight));
            width += weight->ne[1];
        }
        args.insert(args.end(), biases.begin(), biases.end());
        if (residual) {
            args.push_back(residual);
        }
        const FusedParams params = {
            .i = {as_int(weights.size()), as_int(!biases.empty()), residual != nullptr}};
        return fused_node(ctx_, kLinear, shape(x, width), args, params);
    }
    ggml_tensor * y = nullptr;
    for (size_t i = 0; i < weights.size(); ++i) {
        ggml_tensor * part = product(ctx_, factor(weights[i]), x);  // [M_i, N]
        if (!biases.empty()) {
            part = ggml_add(ctx_, part, biases[i]);
        }
        y = y ? ggml_concat(ctx_, y, part, 0) : part;
    }
    return residual ? ggml_add(ctx_, y, residual) : y;
}

ggml_tensor * Ops::linear_blocks(
    ggml_tensor * x, const std::vector<ggml_tensor *> & weights, ggml_tensor * residual
) {
    const int64_t K = weights[0]->ne[0];
    if (own_products()) {
        std::vector<ggml_tensor *> args = {other_factor(x)};
        for (ggml_tensor * weight : weights) {
            args.push_back(factor(weight));
        }
        args.push_back(residual);
        const FusedParams params = {.i = {as_int(weights.size()), 0, 1, 1}};
        return fused_node(ctx_, kLinear, shape(x, residual->ne[0]), args, params);
    }
    ggml_tensor * y = nullptr;
    for (size_t i = 0; i < weights.size(); ++i) {
        ggml_tensor * mine = ggml_cont(
            ctx_,
            ggml_view_2d(ctx_, x, K, x->ne[1], x->nb[1], i * static_cast<size_t>(K) * x->nb[0])
        );
        ggml_tensor * part = product(ctx_, factor(weights[i]), mine);
        y                  = y ? ggml_concat(ctx_, y, part, 0) : part;
    }
    return ggml_add(ctx_, y, residual);
}

ggml_tensor * Ops::layer_norm(ggml_tensor * x, ggml_tensor * w, ggml_tensor * b, float eps) {
    if (form_ != Form::portable) {
        ggml_tensor * stats = leaf(2, ggml_nrows(x));
        return fused_node(ctx_, kLayerNorm, shape(x, x->ne[0]), {x, w, b, stats}, {.f = {eps}});
    }
    return ggml_add(ctx_, ggml_mul(ctx_, ggml_norm(ctx_, x, eps), w), b);
}

ggml_tensor * Ops::rms_norm(ggml_tensor * x, ggml_tensor * w, float eps) {
    if (form_ != Form::portable) {
        ggml_tensor * stats = leaf(2, ggml_nrows(x));
        return fused_node(ctx_, kRmsNorm, shape(x, x->ne[0]), {x, w, stats}, {.f = {eps}});
    }
    return ggml_mul(ctx_, ggml_rms_norm(ctx_, x, eps), w);
}

void Ops::set_dropout(float rate, ggml_tensor * keys) {
    GT_CHECK(rate == 0.0f || form_ == Form::fused, "dropout has only a fused form");
    dropout_      = rate;
    dropout_keys_ = keys;
}

ggml_tensor * Ops::dropout(ggml_tensor * x) {
    if (dropout_ == 0.0f) {
        return x;
    }
    const FusedParams params = {.i = {n_dropouts_++}, .f = {dropout_}};
    return fused_node(ctx_, kDropout, shape(x, x->ne[0]), {x, dropout_keys_}, params);
}

ggml_tensor * Ops::gelu(ggml_tensor * x, GeluKind kind) {
    if (form_ != Form::portable) {
        const FusedParams params = {.i = {kind == GeluKind::erf}};
        return fused_node(ctx_, kGelu, shape(x, x->ne[0]), {x}, params);
    }
    if (kind == GeluKind::erf) {
        return ggml_gelu_erf(ctx_, x);
    }
    // ggml's tanh GELU is an F16 table on the CPU, so it is spelled out: x/2 (1 + tanh(z/2)), which is
    // x sigmoid(z), with z = x (kGeluLinear + kGeluCubic x^2)
    ggml_tensor * z =
        ggml_mul(ctx_, x, ggml_scale_bias(ctx_, ggml_sqr(ctx_, x), kGeluCubic, kGeluLinear));
    ggml_tensor * y = ggml_mul(ctx_, x, ggml_sigmoid(ctx_, z));
    rules_[y]       = rule_gelu_tanh;
    return y;
}

ggml_tensor * Ops::swiglu(ggml_tensor * gate, ggml_tensor * up) {
    if (form_ != Form::portable) {
        return fused_node(ctx_, kSwiglu, shape(gate, gate->ne[0]), {gate, up});
    }
    return ggml_mul(ctx_, ggml_silu(ctx_, gate), up);
}

ggml_tensor * Ops::rope(
    ggml_tensor * x, int64_t T, int64_t n_heads, int64_t n_rot, int64_t D, const Rope & rope
) {
    if (form_ == Form::fused) {
        const FusedParams params = {
            .i = {as_int(T), as_int(n_heads), as_int(n_rot), as_int(D), 0, rope.neox},
            .f = {rope.scale}};
        return fused_node(ctx_, kRope, shape(x, x->ne[0]), {x, rope.divisors}, params);
    }
    const int64_t B    = ggml_nrows(x) / T;
    ggml_tensor * t    = ggml_arange(ctx_, 0.0f, static_cast<float>(T), 1.0f);
    ggml_tensor * pos  = ggml_cast(ctx_, t, GGML_TYPE_I32);           // [T]
    ggml_tensor * head = ggml_reshape_4d(ctx_, x, D, n_heads, T, B);  // [D, heads, T, B]
    auto          part = [&](int64_t first, int64_t n) {
        return ggml_cont(
                     ctx_,
                     ggml_view_4d(
                         ctx_, head, D, n, T, B, head->nb[1], head->nb[2], head->nb[3], first * head->nb[1]
                     )
                 );
    };
    // with base 1 the factors alone decide
    ggml_tensor * turned = ggml_rope_ext(
        ctx_, part(0, n_rot), pos, rope.divisors, as_int(D),
        rope.neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, 0, 1.0f, 1.0f, 0.0f, rope.scale,
        0.0f, 0.0f
    );
    if (n_rot < n_heads) {
        turned = ggml_concat(ctx_, turned, part(n_rot, n_heads - n_rot), 1);
    }
    return ggml_reshape_2d(ctx_, turned, n_heads * D, T * B);
}

// A window is a segment of which every token sees the end: the places in it are limited.
ggml_tensor * Ops::window_positions(const AttentionShape & s, int64_t B) {
    ggml_tensor * place = nullptr;
    if (s.positions) {
        place = ggml_cast(ctx_, s.positions, GGML_TYPE_F32);
    } else {
        ggml_tensor * t = ggml_arange(ctx_, 0.0f, static_cast<float>(s.T), 1.0f);
        place           = ggml_repeat_4d(ctx_, t, s.T * B, 1, 1, 1);
    }
    place = ggml_clamp(ctx_, place, 0.0f, static_cast<float>(s.window - 1));
    return keep(ggml_cast(ctx_, place, GGML_TYPE_I32));
}

ggml_tensor * Ops::attention(ggml_tensor * qkv, const AttentionShape & given) {
    AttentionShape s = given;
    if (s.window > 0 && s.window < s.T) {
        s.positions = window_positions(s, ggml_nrows(qkv) / s.T);
    }
    if (form_ == Form::portable || (form_ == Form::device && s.D > cuda::kMaxHead)) {
        return attention_portable(qkv, s);
    }
    ggml_tensor *     lse    = leaf(s.T * s.H, ggml_nrows(qkv) / s.T);
    const FusedParams params = {
        .i = {
            as_int(s.T), as_int(s.H), as_int(s.Hkv), as_int(s.D), s.causal,
            form_ == Form::device && compute_ == GGML_TYPE_BF16}};
    return fused_node(ctx_, kAttention, shape(qkv, s.H * s.D), {qkv, lse, s.positions}, params);
}

// [T, T, 1, B]: -inf where a key belongs to an earlier segment than the query, else 0.
ggml_tensor * Ops::segment_mask(const AttentionShape & s, int64_t B) {
    const auto    end   = static_cast<float>(s.T);
    ggml_tensor * place = ggml_cast(ctx_, s.positions, GGML_TYPE_F32);
    place               = ggml_reshape_3d(ctx_, place, s.T, 1, B);
    ggml_tensor * t     = ggml_repeat(ctx_, ggml_arange(ctx_, 0.0f, end, 1.0f), place);
    ggml_tensor * from  = ggml_reshape_4d(ctx_, ggml_sub(ctx_, t, place), 1, s.T, 1, B);
    ggml_tensor * keys  = ggml_repeat_4d(ctx_, ggml_arange(ctx_, 0.0f, end, 1.0f), s.T, s.T, 1, B);
    // 1 or 0, then its logarithm
    return ggml_log(
        ctx_, ggml_step(ctx_, ggml_scale_bias(ctx_, ggml_sub(ctx_, keys, from), 1.0f, 0.5f))
    );
}

// What is added to the scores: nothing to keys up to the query's own, -1e30 to later ones. [keys, queries]
ggml_tensor * Ops::causal_mask(int64_t T) {
    ggml_tensor *& mask = masks_[T];
    if (!mask) {
        ggml_tensor * t    = ggml_arange(ctx_, 0.0f, static_cast<float>(T), 1.0f);  // [T]
        ggml_tensor * keys = ggml_repeat_4d(ctx_, t, T, T, 1, 1);
        ggml_tensor * late = ggml_sub(ctx_, keys, ggml_reshape_2d(ctx_, t, 1, T));
        mask               = keep(ggml_scale(ctx_, ggml_clamp(ctx_, late, 0.0f, 1.0f), -1e30f));
    }
    return mask;
}

ggml_tensor * Ops::attention_portable(ggml_tensor * qkv, const AttentionShape & s) {
    const int64_t B    = ggml_nrows(qkv) / s.T;
    ggml_tensor * all  = ggml_reshape_4d(ctx_, qkv, s.D, s.H + 2 * s.Hkv, s.T, B);
    auto          part = [&](int64_t first, int64_t n) {
        return ggml_view_4d(
                     ctx_, all, s.D, n, s.T, B, all->nb[1], all->nb[2], all->nb[3], first * all->nb[1]
                 );  // [D, n, T, B]
    };
    ggml_tensor * q =
        ggml_cont(ctx_, ggml_permute(ctx_, part(0, s.H), 0, 2, 1, 3));  // [D, T, H, B]
    ggml_tensor * k =
        ggml_cont(ctx_, ggml_permute(ctx_, part(s.H, s.Hkv), 0, 2, 1, 3));  // [D, T, Hkv, B]
    ggml_tensor * v = ggml_cont(
        ctx_, ggml_permute(ctx_, part(s.H + s.Hkv, s.Hkv), 1, 2, 0, 3)
    );  // [T, D, Hkv, B]

    ggml_tensor * mask = s.causal ? causal_mask(s.T) : nullptr;
    if (s.positions) {
        ggml_tensor * segments = segment_mask(s, B);
        mask                   = mask ? ggml_add(ctx_, segments, mask) : segments;
    }
    ggml_tensor * scores = ggml_mul_mat(ctx_, k, q);  // [T, T, H, B]
    ggml_tensor * p =
        ggml_soft_max_ext(ctx_, scores, mask, 1.0f / std::sqrt(static_cast<float>(s.D)), 0.0f);
    ggml_tensor * o = ggml_mul_mat(ctx_, v, p);                            // [D, T, H, B]
    o               = ggml_cont(ctx_, ggml_permute(ctx_, o, 0, 2, 1, 3));  // [D, H, T, B]
    return ggml_reshape_2d(ctx_, o, s.D * s.H, s.T * B);
}

ggml_tensor *
Ops::embedding(ggml_tensor * table, ggml_tensor * ids, ggml_tensor * positions, int64_t T) {
    const int64_t C = table->ne[0];
    const int64_t N = ids->ne[0];
    if (form_ == Form::fused || (form_ == Form::device && table->type == GGML_TYPE_F32)) {
        return fused_node(
            ctx_, kEmbedding, {C, N, 1, 1}, {table, ids, positions}, {.i = {as_int(T)}}
        );
    }
    ggml_tensor * x = ggml_get_rows(ctx_, table, ids);  // [C, T*B]
    if (!positions) {
        return x;
    }
    if (positions->type != GGML_TYPE_F32) {
        positions = ggml_cast(ctx_, positions, GGML_TYPE_F32);
    }
    ggml_tensor * first = ggml_view_2d(ctx_, positions, C, T, positions->nb[1], 0);
    ggml_tensor * sum   = ggml_add(ctx_, ggml_reshape_3d(ctx_, x, C, T, N / T), first);
    return ggml_reshape_2d(ctx_, sum, C, N);
}

ggml_tensor * Ops::patch_embedding(ggml_tensor * images, ggml_tensor * kernel, ggml_tensor * bias) {
    const int     P       = as_int(kernel->ne[0]);
    ggml_tensor * outline = ggml_dup_tensor(ctx_, kernel);  // im2col reads its shape only
    ggml_tensor * patches = ggml_im2col(
        ctx_, outline, images, P, P, 0, 0, 1, 1, true, GGML_TYPE_F32
    );  // [P*P*channels, W/P, H/P, B]
    const int64_t K = patches->ne[0];
    return linear(
        ggml_reshape_2d(ctx_, patches, K, ggml_nelements(patches) / K),
        {ggml_reshape_2d(ctx_, kernel, K, kernel->ne[3])}, {bias}
    );
}

}  // namespace gt
