// Gradient rules of ggml's own ops, made of ggml primitives: they run on every backend. Only the ops
// that the portable forms use are here; anything else is an Error at graph build.
#include "ggml-train/graph/autograd.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gt {

static float float_param(const ggml_tensor * node, int i) {
    float value = 0.0f;
    std::memcpy(&value, node->op_params + i, sizeof(value));
    return value;
}

static void rule_add(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    for (int i : {0, 1}) {
        if (a.needs(y->src[i])) {
            a.add_sum(y->src[i], g);
        }
    }
}

static void rule_mul(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    for (int i : {0, 1}) {
        if (a.needs(y->src[i])) {
            ggml_tensor * other = a.value(y->src[1 - i]);
            a.add_sum(y->src[i], ggml_mul(a.ctx(), contiguous(a, g), other));
        }
    }
}

static void rule_scale(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    a.add(y->src[0], ggml_scale(a.ctx(), contiguous(a, g), float_param(y, 0)));
}

static void rule_sqr(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_tensor * x = y->src[0];
    a.add(x, ggml_scale(a.ctx(), ggml_mul(a.ctx(), g, a.value(x)), 2.0f));
}

// x transposed, contiguous, in a type.
static ggml_tensor * transposed(Autograd & a, ggml_tensor * x, ggml_type type) {
    ggml_tensor * xt = ggml_transpose(a.ctx(), x);
    return type == x->type ? ggml_cont(a.ctx(), xt) : ggml_cast(a.ctx(), xt, type);
}

// y [M, N] = w [K, M] * x [K, N], with w broadcast over the batch dimensions of x. Where w is a copy
// in another type than F32 (Ops::factor), both gradients are computed in that type.
static void rule_mul_mat(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_context * ctx = a.ctx();
    ggml_tensor *  w   = y->src[0];
    ggml_tensor *  x   = y->src[1];
    g                  = contiguous(a, g);
    if (a.needs(w)) {
        ggml_tensor * xt = transposed(a, a.value(x), w->type);      // [N, K]
        ggml_tensor * gt = ggml_cont(ctx, ggml_transpose(ctx, g));  // [N, M]
        ggml_tensor * dw = product(ctx, xt, gt);                    // [K, M], batches of x
        if (!ggml_are_same_shape(dw, w)) {
            // neighbouring batches of x share one of w: sum over each such group
            GT_CHECK(dw->ne[3] == w->ne[3], "mul_mat broadcasts over the third dimension only");
            const int64_t size = w->ne[0] * w->ne[1], groups = w->ne[2] * w->ne[3];
            dw = ggml_reshape_3d(ctx, dw, size, dw->ne[2] / w->ne[2], groups);
            dw = sum_copies(a, dw, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, size, 1, groups));
            dw = ggml_reshape(ctx, dw, w);
        }
        a.add(w, dw);
    }
    if (a.needs(x)) {
        // of a quantized weight only the copy can be transposed
        const bool    from_copy = w->op != GGML_OP_CPY || ggml_is_quantized(w->src[0]->type);
        ggml_tensor * original  = from_copy ? w : w->src[0];
        a.add(x, product(ctx, transposed(a, a.value(original), w->type), g));
    }
}

static void rule_reshape(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    a.add(y->src[0], ggml_reshape(a.ctx(), contiguous(a, g), y->src[0]));
}

static void rule_cont(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    a.add(y->src[0], g);
}

static void rule_permute(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    int back[4];
    for (int i = 0; i < 4; ++i) {
        back[y->op_params[i]] = i;
    }
    a.add(y->src[0], ggml_permute(a.ctx(), g, back[0], back[1], back[2], back[3]));
}

static void rule_transpose(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    a.add(y->src[0], ggml_transpose(a.ctx(), g));
}

// The view's gradient, set into zeros of the source's shape.
static void rule_view(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_tensor * x     = y->src[0];
    ggml_tensor * zeros = ggml_fill(a.ctx(), ggml_dup_tensor(a.ctx(), x), 0.0f);
    const size_t  at    = y->view_offs - (x->view_src ? x->view_offs : 0);
    a.add(x, ggml_acc(a.ctx(), zeros, contiguous(a, g), y->nb[1], y->nb[2], y->nb[3], at));
}

static void rule_concat(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    const int dim = y->op_params[0];
    size_t    at  = 0;
    for (int i : {0, 1}) {
        ggml_tensor * x    = y->src[i];
        ggml_tensor * part = ggml_view_4d(
            a.ctx(), g, x->ne[0], x->ne[1], x->ne[2], x->ne[3], g->nb[1], g->nb[2], g->nb[3], at
        );
        a.add(x, ggml_cont(a.ctx(), part));
        at += x->ne[dim] * g->nb[dim];
    }
}

static void rule_repeat(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    a.add_sum(y->src[0], g);
}

static void rule_sum_rows(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    a.add(y->src[0], ggml_repeat(a.ctx(), g, y->src[0]));
}

static ggml_tensor * row_mean(ggml_context * ctx, ggml_tensor * x) {
    return ggml_scale(ctx, ggml_sum_rows(ctx, x), 1.0f / static_cast<float>(x->ne[0]));
}

// y = (x - mean) r, r = 1/sqrt(var + eps):  dx = r (g - mean(g) - y mean(g y))
static void rule_norm(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_context * ctx = a.ctx();
    ggml_tensor *  x   = a.value(y->src[0]);
    ggml_tensor *  xc  = ggml_sub(ctx, x, row_mean(ctx, x));
    ggml_tensor *  var = row_mean(ctx, ggml_sqr(ctx, xc));  // [1, N]
    ggml_tensor *  dev = ggml_sqrt(ctx, ggml_scale_bias(ctx, var, 1.0f, float_param(y, 0)));
    ggml_tensor *  yv  = ggml_div(ctx, xc, dev);
    g                  = contiguous(a, g);
    ggml_tensor * dx   = ggml_sub(ctx, g, row_mean(ctx, g));
    dx                 = ggml_sub(ctx, dx, ggml_mul(ctx, yv, row_mean(ctx, ggml_mul(ctx, g, yv))));
    a.add(y->src[0], ggml_div(ctx, dx, dev));
}

// y = x r, r = 1/sqrt(mean(x^2) + eps):  dx = r (g - y mean(g y))
static void rule_rms_norm(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_context * ctx = a.ctx();
    ggml_tensor *  x   = a.value(y->src[0]);
    const float    eps = float_param(y, 0);
    g                  = contiguous(a, g);
    ggml_tensor * dx   = ggml_rms_norm_back(ctx, g, x, eps);
    if (!a.ops().runs(dx)) {
        ggml_tensor * mean = row_mean(ctx, ggml_sqr(ctx, x));
        ggml_tensor * root = ggml_sqrt(ctx, ggml_scale_bias(ctx, mean, 1.0f, eps));
        ggml_tensor * yv   = ggml_div(ctx, x, root);
        dx = ggml_sub(ctx, g, ggml_mul(ctx, yv, row_mean(ctx, ggml_mul(ctx, g, yv))));
        dx = ggml_div(ctx, dx, root);
    }
    a.add(y->src[0], dx);
}

// y = softmax(scale x + mask):  dx = scale y (g - sum(g y))
static void rule_soft_max(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_context * ctx   = a.ctx();
    const float    scale = float_param(y, 0);
    ggml_tensor *  yv    = a.value(y);
    g                    = contiguous(a, g);
    ggml_tensor * dx     = ggml_soft_max_ext_back(ctx, g, yv, scale, 0.0f);
    if (!a.ops().runs(dx)) {
        ggml_tensor * dot = ggml_sum_rows(ctx, ggml_mul(ctx, g, yv));
        dx                = ggml_mul(ctx, ggml_sub(ctx, g, dot), yv);
        dx                = scale == 1.0f ? dx : ggml_scale(ctx, dx, scale);
    }
    a.add(y->src[0], dx);
}

static void rule_rope(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    const int32_t * p = y->op_params;
    a.add(
        y->src[0], ggml_rope_ext_back(
                       a.ctx(), contiguous(a, g), y->src[1], y->src[2], p[1], p[2], p[4],
                       float_param(y, 5), float_param(y, 6), float_param(y, 7), float_param(y, 8),
                       float_param(y, 9), float_param(y, 10)
                   )
    );
}

// The gradient of a table by products with ones at the ids, of as many columns at once as 64 MB hold.
static void
rows_by_products(Autograd & a, ggml_tensor * table, ggml_tensor * ids, ggml_tensor * g) {
    ggml_context * ctx = a.ctx();
    const int64_t  V = table->ne[1], N = ids->ne[0];
    const int64_t  most = std::max<int64_t>(1, (int64_t{16} << 20) / V);
    for (int64_t begin = 0; begin < N; begin += most) {
        const int64_t n      = std::min(most, N - begin);
        ggml_tensor * zeros  = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 1, V, n);
        ggml_tensor * ones   = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 1, 1, n);
        ggml_tensor * some   = ggml_view_2d(ctx, ids, 1, n, ids->nb[0], begin * ids->nb[0]);
        ggml_tensor * places = ggml_set_rows(
            ctx, ggml_fill(ctx, zeros, 0.0f), ggml_fill(ctx, ones, 1.0f), some
        );  // [1, V, n]
        ggml_tensor * part = ggml_view_2d(ctx, g, g->ne[0], n, g->nb[1], begin * g->nb[1]);
        a.add(
            table, ggml_mul_mat(
                       ctx, ggml_cont(ctx, ggml_transpose(ctx, part)),
                       ggml_cont(ctx, ggml_transpose(ctx, ggml_reshape_2d(ctx, places, V, n)))
                   )
        );
    }
}

static void rule_get_rows(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    g                 = contiguous(a, g);
    ggml_tensor * sum = ggml_get_rows_back(a.ctx(), g, y->src[1], y->src[0]);
    if (a.ops().runs(sum)) {
        a.add(y->src[0], sum);
    } else {
        rows_by_products(a, y->src[0], y->src[1], g);
    }
}

// gelu(x) = x P(x) with P the normal distribution:  gelu'(x) = P(x) + x p(x).
static ggml_tensor * gelu_erf_slope(ggml_context * ctx, ggml_tensor * x) {
    // P(x) = gelu(x) / x, moved off zero by less than any rounding
    ggml_tensor * off  = ggml_scale_bias(ctx, x, 1.0f, 1e-20f);
    ggml_tensor * P    = ggml_div(ctx, ggml_gelu_erf(ctx, off), off);
    ggml_tensor * bell = ggml_exp(ctx, ggml_scale(ctx, ggml_sqr(ctx, x), -0.5f));
    return ggml_add(ctx, P, ggml_scale(ctx, ggml_mul(ctx, x, bell), 0.39894228040143267794f));
}

static void rule_unary(Autograd & a, ggml_tensor * y, ggml_tensor * g) {
    ggml_context * ctx = a.ctx();
    ggml_tensor *  x   = y->src[0];
    g                  = contiguous(a, g);
    switch (ggml_get_unary_op(y)) {
        case GGML_UNARY_OP_SILU:
            a.add(x, ggml_silu_back(ctx, g, a.value(x)));
            break;
        case GGML_UNARY_OP_GELU_ERF:
            a.add(x, ggml_mul(ctx, g, gelu_erf_slope(ctx, a.value(x))));
            break;
        default:
            GT_CHECK(false, "find_rule admits the unary ops above only");
    }
}

static bool has_unary_rule(ggml_unary_op op) {
    return op == GGML_UNARY_OP_SILU || op == GGML_UNARY_OP_GELU_ERF;
}

GradRule find_rule(const ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_ADD:
            return rule_add;
        case GGML_OP_MUL:
            return rule_mul;
        case GGML_OP_SCALE:
            return rule_scale;
        case GGML_OP_SQR:
            return rule_sqr;
        case GGML_OP_MUL_MAT:
            return rule_mul_mat;
        case GGML_OP_RESHAPE:
            return rule_reshape;
        case GGML_OP_CPY:
        case GGML_OP_CONT:
            return rule_cont;
        case GGML_OP_PERMUTE:
            return rule_permute;
        case GGML_OP_TRANSPOSE:
            return rule_transpose;
        case GGML_OP_VIEW:
            return rule_view;
        case GGML_OP_CONCAT:
            return rule_concat;
        case GGML_OP_REPEAT:
            return rule_repeat;
        case GGML_OP_SUM_ROWS:
            return rule_sum_rows;
        case GGML_OP_NORM:
            return rule_norm;
        case GGML_OP_RMS_NORM:
            return rule_rms_norm;
        case GGML_OP_SOFT_MAX:
            return rule_soft_max;
        case GGML_OP_ROPE:
            return rule_rope;
        case GGML_OP_GET_ROWS:
            return rule_get_rows;
        case GGML_OP_UNARY:
            return has_unary_rule(ggml_get_unary_op(node)) ? rule_unary : nullptr;
        default:
            return nullptr;
    }
}

}  // namespace gt
