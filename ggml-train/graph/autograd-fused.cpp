// Gradient rules of our own nodes (fused.h). Weight gradients go straight into the accumulators of
// the parameters; gradients of activations are new nodes.
#include "ggml-train/graph/autograd.h"

namespace gt {

static std::array<int64_t, 4> shape(const ggml_tensor * x) {
    return {x->ne[0], x->ne[1], x->ne[2], x->ne[3]};
}

// The gradient of y as kernels take it.
static ggml_tensor * of_same_type(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    return as_type(a, contiguous(a, g), y->type);
}

// The gradient that x has so far, for a kernel that adds to it; or null.
static ggml_tensor * so_far(Autograd & a, ggml_tensor * x, ggml_type type) {
    ggml_tensor * g = a.take(x);
    return g ? as_type(a, contiguous(a, g), type) : nullptr;
}

// The gradient of a weight that is a parameter, a reshaped view of one, or a cast.
static ggml_tensor * weight_accumulator(Autograd & a, ggml_tensor * w, ggml_tensor ** param) {
    *param = w;
    while ((*param)->op == GGML_OP_RESHAPE || (*param)->op == GGML_OP_CPY) {
        *param = (*param)->src[0];
    }
    ggml_tensor * acc = a.accumulator(*param);
    return acc && !ggml_are_same_shape(acc, w) ? ggml_reshape(a.ctx(), acc, w) : acc;
}

static void rule_linear(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    const FusedParams p         = fused_params(y);
    const int         n_weights = p.i[0];
    ggml_tensor *     x         = y->src[0];
    if (p.i[2]) {
        a.add(y->src[1 + n_weights * (p.i[1] ? 2 : 1)], g);
    }
    g                                  = contiguous(a, g);
    ggml_tensor *              dy      = a.ops().other_factor(g);
    std::vector<ggml_tensor *> dx_args = {dy};
    int32_t                    column = 0, x_column = 0;
    for (int i = 0; i < n_weights; ++i) {
        ggml_tensor * w = y->src[1 + i], *param = nullptr, *bias_param = nullptr;
        ggml_tensor * bias     = p.i[1] ? y->src[1 + n_weights + i] : nullptr;
        ggml_tensor * acc      = weight_accumulator(a, w, &param);
        ggml_tensor * bias_acc = bias ? weight_accumulator(a, bias, &bias_param) : nullptr;
        // on a device the product reads dy for both
        const bool    both = acc && bias_acc && a.ops().form() == Form::device;
        ggml_tensor * sums = both ? ggml_new_tensor_1d(a.ctx(), GGML_TYPE_F32, w->ne[1]) : nullptr;
        if (acc) {
            a.emit(fused_inplace(
                a.ctx(), kLinearBackW, acc, {dy, a.value(x), a.next_beta(param), sums},
                {.i = {column, x_column}}
            ));
        }
        if (bias_acc) {
            ggml_tensor * beta = a.next_beta(bias_param);
            a.emit(fused_inplace(
                a.ctx(), kSumRows, bias_acc, {sums ? sums : dy, beta}, {.i = {sums ? 0 : column}}
            ));
        }
        column += static_cast<int32_t>(w->ne[1]);
        x_column += p.i[3] ? static_cast<int32_t>(w->ne[0]) : 0;
    }
    if (!a.needs(x)) {
        return;
    }
    // a cast hands its gradient on as F32
    const ggml_type type = x->op == GGML_OP_CPY ? GGML_TYPE_F32 : x->type;
    ggml_tensor *   old  = so_far(a, x, type);
    if (old) {
        dx_args.push_back(old);
    }
    dx_args.insert(dx_args.end(), y->src + 1, y->src + 1 + n_weights);
    const FusedParams params = {.i = {n_weights, old != nullptr, 0, p.i[3]}};
    a.add(x, fused_node(a.ctx(), kLinearBackX, shape(x), dx_args, params, type));
}

// Both norms: y = kernel(x, w[, b], stats).
static void back_norm(
    Autograd &    a,
    ggml_tensor * y,
    ggml_tensor * g,
    bool          rms,
    ggml_tensor * bias,
    ggml_tensor * stats
) {
    ggml_tensor * x = y->src[0];
    ggml_tensor * w = y->src[1];
    g               = of_same_type(a, y, g);
    if (ggml_tensor * acc = a.accumulator(w)) {
        ggml_tensor * beta     = a.next_beta(w);
        ggml_tensor * bias_acc = bias ? a.accumulator(bias) : nullptr;
        a.emit(fused_inplace(a.ctx(), kNormBackW, acc, {g, a.value(x), stats, beta, bias_acc}));
    }
    if (a.needs(x)) {
        const FusedParams params = {.i = {rms}};
        a.add(
            x, fused_node(
                   a.ctx(), kNormBackX, shape(x), {g, a.value(x), w, stats, so_far(a, x, x->type)},
                   params, x->type
               )
        );
    }
}

static void rule_layer_norm(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    back_norm(a, y, g, false, y->src[2], y->src[3]);
}

static void rule_fused_rms_norm(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    back_norm(a, y, g, true, nullptr, y->src[2]);
}

static void rule_gelu(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_tensor * x = y->src[0];
    a.add(
        x, fused_node(
               a.ctx(), kGeluBack, shape(x), {a.value(x), of_same_type(a, y, g)}, fused_params(y),
               x->type
           )
    );
}

static void rule_swiglu(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_tensor * gate = y->src[0];
    ggml_tensor * up   = y->src[1];
    ggml_tensor * both = fused_node(
        a.ctx(), kSwigluBack, {y->ne[0], ggml_nrows(y), 2, 1},
        {a.value(gate), a.value(up), of_same_type(a, y, g)}, {}, y->type
    );
    auto half = [&](size_t i) {
        return ggml_view_2d(a.ctx(), both, y->ne[0], ggml_nrows(y), both->nb[1], i * both->nb[2]);
    };
    a.add(gate, half(0));
    a.add(up, half(1));
}

static void rule_dropout(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_tensor * x = y->src[0];
    a.add(
        x, fused_node(a.ctx(), kDropout, shape(x), {contiguous(a, g), y->src[1]}, fused_params(y))
    );
}

static void rule_fused_rope(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    FusedParams p = fused_params(y);
    p.i[4]        = 1;
    a.add(y->src[0], fused_node(a.ctx(), kRope, shape(y), {contiguous(a, g), y->src[1]}, p));
}

static void rule_attention(Autograd & a, ggml_tensor * o, ggml_tensor * g) {
    ggml_tensor * qkv     = o->src[0];
    ggml_tensor * lse     = o->src[1];
    const bool    device  = a.ops().form() == Form::device;
    ggml_tensor * scratch = device ? ggml_dup_tensor(a.ctx(), lse) : nullptr;
    ggml_tensor * dqkv    = fused_node(
           a.ctx(), kAttentionBack, shape(qkv),
           {a.value(qkv), a.value(o), lse, of_same_type(a, o, g), scratch, o->src[2]}, fused_params(o),
           qkv->type
       );
    a.add(qkv, dqkv);
}

static void rule_embedding(Autograd & a, ggml_tensor * x, ggml_tensor * g) {
    ggml_tensor * table     = x->src[0];
    ggml_tensor * positions = x->src[2];
    g                       = contiguous(a, g);
    if (ggml_tensor * acc = a.accumulator(table)) {
        a.emit(fused_inplace(a.ctx(), kEmbeddingBack, acc, {g, x->src[1], a.next_beta(table)}));
    }
    if (ggml_tensor * acc = positions ? a.accumulator(positions) : nullptr) {
        a.emit(
            fused_inplace(a.ctx(), kPositionBack, acc, {g, a.next_beta(positions)}, fused_params(x))
        );
    }
}

GradRule find_fused_rule(const ggml_tensor * node) {
    static const std::unordered_map<const FusedOp *, GradRule> rules = {
        {&kLinear, rule_linear},          {&kLayerNorm, rule_layer_norm},
        {&kRmsNorm, rule_fused_rms_norm}, {&kGelu, rule_gelu},
        {&kSwiglu, rule_swiglu},          {&kRope, rule_fused_rope},
        {&kAttention, rule_attention},    {&kEmbedding, rule_embedding},
        {&kDropout, rule_dropout},
    };
    const auto found = rules.find(fused_op(node));
    return found == rules.end() ? nullptr : found->second;
}

}  // namespace gt
