#include "models/vit.h"

namespace gt {

ggml_tensor * Vit::embed(Ops & ops, const Inputs & in) {
    ggml_context * ctx = ops.ctx();
    const int64_t  C = config_.n_embd, P = config_.n_patches(), T = config_.n_positions();
    ggml_tensor *  x =
        ops.patch_embedding(in.images, w("v.patch_embd.weight"), w("v.patch_embd.bias"));
    x = ggml_reshape_3d(ctx, x, C, P, in.B);  // [C, P, B]
    if (config_.has_class_token()) {
        ggml_tensor * token = ggml_repeat_4d(ctx, w("v.class_embd"), C, 1, in.B, 1);  // [C, 1, B]
        x                   = ggml_concat(ctx, token, x, 1);                          // [C, T, B]
    }
    x = ggml_add(ctx, x, w("v.position_embd.weight"));
    return ggml_reshape_2d(ctx, x, C, T * in.B);  // [C, T*B]
}

// x + factor * branch, one factor per sample: stochastic depth, arXiv 1603.09382.
static ggml_tensor *
add_branch(Ops & ops, const Inputs & in, int branch, ggml_tensor * x, ggml_tensor * y) {
    ggml_context * ctx    = ops.ctx();
    const size_t   size   = sizeof(float);
    ggml_tensor *  factor = ggml_cont(  // [1, 1, B]
        ctx, ggml_view_3d(ctx, in.depth, 1, 1, in.B, size, in.depth->nb[1], branch * size)
    );
    y                     = ggml_reshape_3d(ctx, y, y->ne[0], y->ne[1] / in.B, in.B);  // [C, T, B]
    y                     = ggml_mul(ctx, y, factor);
    return ggml_add(ctx, ggml_reshape_2d(ctx, y, x->ne[0], x->ne[1]), x);  // [C, T*B]
}

ggml_tensor * Vit::block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) {
    const std::string at  = format("v.blk.%d.", i);
    const auto        lin = [&](ggml_tensor * y, const char * name, ggml_tensor * residual) {
        return ops.linear(y, {w(at + name + ".weight")}, {w(at + name + ".bias")}, residual);
    };
    const auto add = [&](ggml_tensor * y, const char * name, int branch) {
        return in.depth ? add_branch(ops, in, branch, x, lin(y, name, nullptr)) : lin(y, name, x);
    };
    ggml_tensor * h = layer_norm(ops, x, at + "ln1");  // [C, T*B]
    h               = ops.linear(
                      h, {w(at + "attn_q.weight"), w(at + "attn_k.weight"), w(at + "attn_v.weight")},
                      {w(at + "attn_q.bias"), w(at + "attn_k.bias"), w(at + "attn_v.bias")}
                  );                                                      // [3C, T*B]
    h = ops.attention(h, attention_shape(config_.n_positions(), false));  // [C, T*B]
    x = add(h, "attn_out", 2 * i);                                        // [C, T*B]

    h = layer_norm(ops, x, at + "ln2");                      // [C, T*B]
    h = ops.gelu(lin(h, "ffn_up", nullptr), GeluKind::erf);  // [F, T*B]
    return add(h, "ffn_down", 2 * i + 1);                    // [C, T*B]
}

Head Vit::head(Ops & ops, const Inputs & in, ggml_tensor * x) {
    ggml_context * ctx = ops.ctx();
    const int64_t  C = config_.n_embd, T = config_.n_positions();
    x = ggml_reshape_3d(ctx, layer_norm(ops, x, "v.post_ln"), C, T, in.B);  // [C, T, B]
    if (config_.has_class_token()) {
        x = ggml_view_3d(ctx, x, C, 1, in.B, x->nb[1], x->nb[2], 0);  // [C, 1, B]: the class token
        x = ggml_cont(ctx, x);
    } else {
        x = ggml_sum_rows(ctx, ggml_cont(ctx, ggml_permute(ctx, x, 1, 0, 2, 3)));  // [1, C, B]
        x = ggml_scale(ctx, x, 1.0f / static_cast<float>(T));
    }
    return {
        .x      = ggml_reshape_2d(ctx, x, C, in.B),
        .weight = &weights_.at("v.cls.weight"),
        .bias   = &weights_.at("v.cls.bias")};
}

}  // namespace gt
