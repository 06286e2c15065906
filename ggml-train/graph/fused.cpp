#include "ggml-train/graph/fused.h"

#include "ggml-train/graph/frozen-linear.h"
#include "ggml-train/graph/linear-products.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <ggml-impl.h>

namespace gt {

// op_params of a custom node begins with ggml's own parameters; ours follow.
constexpr size_t kParamsAt = sizeof(ggml_custom_op_params);
static_assert(kParamsAt + sizeof(FusedParams) <= GGML_MAX_OP_PARAMS);

static void run_node(ggml_tensor * dst, int part, int n_parts, void * userdata) {
    static_cast<const FusedOp *>(userdata)->run(dst, fused_params(dst), part, n_parts);
}

static ggml_tensor * finish(ggml_tensor * node, const FusedOp & op, const FusedParams & params) {
    std::memcpy(reinterpret_cast<char *>(node->op_params) + kParamsAt, &params, sizeof(params));
    ggml_set_name(node, op.name);
    return node;
}

ggml_tensor * fused_node(
    ggml_context *                     ctx,
    const FusedOp &                    op,
    std::array<int64_t, 4>             ne,
    const std::vector<ggml_tensor *> & args,
    const FusedParams &                params,
    ggml_type                          type
) {
    std::vector<ggml_tensor *> list(args);  // ggml wants it mutable
    ggml_tensor *              node = ggml_custom_4d(
                     ctx, type, ne[0], ne[1], ne[2], ne[3], list.data(), static_cast<int>(list.size()), run_node,
                     GGML_N_TASKS_MAX, const_cast<FusedOp *>(&op)
                 );
    return finish(node, op, params);
}

ggml_tensor * fused_as(ggml_context * ctx, const ggml_tensor * node, ggml_type type) {
    ggml_tensor * twin = ggml_new_tensor(ctx, type, GGML_MAX_DIMS, node->ne);
    twin->op           = node->op;
    std::copy(std::begin(node->src), std::end(node->src), twin->src);
    std::copy(std::begin(node->op_params), std::end(node->op_params), twin->op_params);
    ggml_set_name(twin, node->name);
    return twin;
}

ggml_tensor * fused_inplace(
    ggml_context *                     ctx,
    const FusedOp &                    op,
    ggml_tensor *                      target,
    const std::vector<ggml_tensor *> & args,
    const FusedParams &                params
) {
    std::vector<ggml_tensor *> list(args);  // ggml wants it mutable
    ggml_tensor *              node = ggml_custom_inplace(
                     ctx, target, list.data(), static_cast<int>(list.size()), run_node, GGML_N_TASKS_MAX,
                     const_cast<FusedOp *>(&op)
                 );
    return finish(node, op, params);
}

void fused_extend(ggml_tensor * node, const ggml_tensor * from, ggml_tensor * inner) {
    std::copy(std::begin(from->src), std::end(from->src), node->src);
    *std::find(std::begin(node->src), std::end(node->src), nullptr) = inner;
    std::copy(std::begin(from->op_params), std::end(from->op_params), node->op_params);
    FusedParams params = fused_params(node);
    params.i[4]        = 1;
    finish(node, *fused_op(node), params);
}

const FusedOp * fused_op(const ggml_tensor * node) {
    if (node->op != GGML_OP_CUSTOM) {
        return nullptr;
    }
    ggml_custom_op_params record;
    std::memcpy(&record, node->op_params, sizeof(record));
    return record.fun == run_node ? static_cast<const FusedOp *>(record.userdata) : nullptr;
}

FusedParams fused_params(const ggml_tensor * node) {
    FusedParams params;
    std::memcpy(
        &params, reinterpret_cast<const char *>(node->op_params) + kParamsAt, sizeof(params)
    );
    return params;
}

// ---- the table -----------------------------------------------------------------------------------

static void run_product(int i, int n, const LinearProduct & product) {
    cpu::Gemm g = product.g;
    g.A         = data(product.A) + product.a_at;
    g.B         = data(product.B) + product.b_at;
    g.C         = data(product.C) + product.c_at;
    g.bias      = data(product.bias);
    g.residual  = product.residual ? data(product.residual) + product.c_at : nullptr;
    cpu::gemm({i, n}, g);
}

static void run_linear(const ggml_tensor * y, const FusedParams & p, int i, int n) {
    each_product_of_linear(y, p, [&](const LinearProduct & product) {
        if (product.B->type == GGML_TYPE_F32) {
            run_product(i, n, product);
        } else {
            frozen_linear(
                {i, n},
                {.w        = product.B,
                 .M        = product.g.M,
                 .x        = data(product.A),
                 .ldx      = product.g.lda,
                 .y        = data(product.C) + product.c_at,
                 .ldy      = product.g.ldc,
                 .bias     = data(product.bias),
                 .residual = product.residual ? data(product.residual) + product.c_at : nullptr}
            );
        }
    });
}

static void run_linear_back_x(const ggml_tensor * dx, const FusedParams & p, int i, int n) {
    const LinearBackX back(dx, p);
    if (std::any_of(back.weights, back.weights + p.i[0], [](auto * w) {
            return w->type != GGML_TYPE_F32;
        })) {
        frozen_linear_back(
            {i, n}, {.weights   = back.weights,
                     .n_weights = p.i[0],
                     .M         = rows(back.dy),
                     .dy        = data(back.dy),
                     .ldy       = back.dy->ne[0],
                     .add       = data(back.add),
                     .dx        = data(dx)}
        );
        return;
    }
    each_product_of_linear_back_x(dx, p, [&](const LinearProduct & product) {
        run_product(i, n, product);
    });
}

static void run_linear_back_w(const ggml_tensor * dw, const FusedParams & p, int i, int n) {
    const LinearProduct product = product_of_linear_back_w(dw, p, *data(dw->src[3]));
    run_product(i, n, product);
    if (product.a_sums) {
        cpu::sum_rows(
            {i, n}, product.g.K, product.g.M, data(product.A) + product.a_at, product.g.lda, 0.0f,
            data(product.a_sums)
        );
    }
}

static void run_sum_rows(const ggml_tensor * db, const FusedParams & p, int i, int n) {
    const ggml_tensor * dy = db->src[1];
    cpu::sum_rows(
        {i, n}, rows(dy), db->ne[0], data(dy) + p.i[0], dy->ne[0], *data(db->src[2]), data(db)
    );
}

// f0: epsilon.
static void run_layer_norm(const ggml_tensor * y, const FusedParams & p, int i, int n) {
    const ggml_tensor * x = y->src[0];
    cpu::layer_norm(
        {i, n}, rows(x), x->ne[0], p.f[0], data(x), data(y->src[1]), data(y->src[2]), data(y),
        data(y->src[3])
    );
}

static void run_rms_norm(const ggml_tensor * y, const FusedParams & p, int i, int n) {
    const ggml_tensor * x = y->src[0];
    cpu::rms_norm(
        {i, n}, rows(x), x->ne[0], p.f[0], data(x), data(y->src[1]), data(y), data(y->src[2])
    );
}

// i0: 1 for RMSNorm.
static void run_norm_back_x(const ggml_tensor * dx, const FusedParams & p, int i, int n) {
    const auto kernel = p.i[0] ? cpu::rms_norm_back : cpu::layer_norm_back;
    kernel(
        {i, n}, rows(dx), dx->ne[0], data(dx->src[0]), data(dx->src[1]), data(dx->src[2]),
        data(dx->src[3]), data(dx->src[4]), data(dx)
    );
}

static void run_norm_back_w(const ggml_tensor * dw, const FusedParams &, int i, int n) {
    const ggml_tensor * dy = dw->src[1];
    cpu::norm_back_params(
        {i, n}, rows(dy), dy->ne[0], data(dy), data(dw->src[2]), data(dw->src[3]),
        *data(dw->src[4]), data(dw), data(dw->src[5])
    );
}

// i0: cpu::Gelu.
static void run_gelu(const ggml_tensor * y, const FusedParams & p, int i, int n) {
    cpu::gelu({i, n}, ggml_nelements(y), cpu::Gelu(p.i[0]), data(y->src[0]), data(y));
}

static void run_gelu_back(const ggml_tensor * dx, const FusedParams & p, int i, int n) {
    cpu::gelu_back(
        {i, n}, ggml_nelements(dx), cpu::Gelu(p.i[0]), data(dx->src[0]), data(dx->src[1]), data(dx)
    );
}

static void run_swiglu(const ggml_tensor * y, const FusedParams &, int i, int n) {
    cpu::swiglu({i, n}, ggml_nelements(y), data(y->src[0]), data(y->src[1]), data(y));
}

static void run_swiglu_back(const ggml_tensor * both, const FusedParams &, int i, int n) {
    const int64_t count = ggml_nelements(both) / 2;
    cpu::swiglu_back(
        {i, n}, count, data(both->src[0]), data(both->src[1]), data(both->src[2]), data(both),
        data(both) + count
    );
}

// i0: layer, f0: rate.
static void run_dropout(const ggml_tensor * y, const FusedParams & p, int i, int n) {
    const ggml_tensor * keys = y->src[1];
    const cpu::Dropout  dropout{
         .B     = keys->ne[0],
         .T     = rows(y) / keys->ne[0],
         .C     = y->ne[0],
         .keys  = ints(keys),
         .layer = p.i[0],
         .rate  = p.f[0]};
    cpu::dropout({i, n}, dropout, data(y->src[0]), data(y));
}

// i: T, heads, rotated heads, D, backward, neox. f0: scale.
static void run_rope(const ggml_tensor * y, const FusedParams & p, int i, int n) {
    const cpu::Rope rope{
        .B        = rows(y) / p.i[0],
        .T        = p.i[0],
        .n_heads  = p.i[1],
        .n_rot    = p.i[2],
        .D        = p.i[3],
        .divisors = data(y->src[1]),
        .scale    = p.f[0],
        .neox     = p.i[5] != 0};
    cpu::rope({i, n}, rope, p.i[4] != 0, data(y->src[0]), data(y));
}

static void run_attention(const ggml_tensor * o, const FusedParams & p, int i, int n) {
    cpu::attention(
        {i, n}, attention_of(p, rows(o), o->src[2]), data(o->src[0]), data(o), data(o->src[1])
    );
}

static void run_attention_back(const ggml_tensor * dqkv, const FusedParams & p, int i, int n) {
    cpu::attention_back(
        {i, n}, attention_of(p, rows(dqkv), dqkv->src[5]), data(dqkv->src[0]), data(dqkv->src[1]),
        data(dqkv->src[2]), data(dqkv->src[3]), data(dqkv)
    );
}

// i0: T.
static void run_embedding(const ggml_tensor * x, const FusedParams & p, int i, int n) {
    const ggml_tensor *table = x->src[0], *ids = x->src[1], *positions = x->src[2];
    if (table->type != GGML_TYPE_F32 || (positions && positions->type != GGML_TYPE_F32)) {
        const int64_t      C    = x->ne[0];
        const cpu::Range   mine = cpu::share({i, n}, rows(x));
        std::vector<float> position(static_cast<size_t>(C));
        for (int64_t r = mine.begin; r < mine.end; ++r) {
            float * out = data(x) + r * C;
            read_row(table, ints(ids)[r], 0, C, out);
            if (positions) {
                read_row(positions, r % p.i[0], 0, C, position.data());
                std::transform(out, out + C, position.begin(), out, std::plus<>());
            }
        }
        return;
    }
    cpu::embedding(
        {i, n}, rows(x), p.i[0], x->ne[0], ints(ids), data(table), data(positions), data(x)
    );
}

static void run_embedding_back(const ggml_tensor * grad, const FusedParams &, int i, int n) {
    const ggml_tensor * dx = grad->src[1];
    cpu::embedding_back(
        {i, n}, rows(dx), grad->ne[1], grad->ne[0], ints(grad->src[2]), data(dx),
        *data(grad->src[3]), data(grad)
    );
}

// i0: T.
static void run_position_back(const ggml_tensor * grad, const FusedParams & p, int i, int n) {
    const ggml_tensor * dx = grad->src[1];
    cpu::position_back(
        {i, n}, rows(dx) / p.i[0], p.i[0], grad->ne[0], data(dx), *data(grad->src[2]), data(grad)
    );
}

// i: V, with gradient. f0: label smoothing.
static void run_cross_entropy(const ggml_tensor * logits, const FusedParams & p, int i, int n) {
    cpu::cross_entropy(
        {i, n}, rows(logits), p.i[0], logits->ne[0], data(logits), ints(logits->src[1]), p.f[0],
        *data(logits->src[2]), p.i[1] != 0, data(logits->src[3])
    );
}

static void run_accumulate(const ggml_tensor * grad, const FusedParams &, int i, int n) {
    const float * g     = data(grad->src[1]);
    const float   beta  = *data(grad->src[2]);
    float *       out   = data(grad);
    const int64_t count = ggml_nelements(grad);
    for (int64_t k = count * i / n; k < count * (i + 1) / n; ++k) {
        out[k] = beta == 0.0f ? g[k] : out[k] + g[k];
    }
}

const FusedOp kLinear        = {"linear", false, run_linear};
const FusedOp kLinearBackX   = {"linear_back_x", false, run_linear_back_x};
const FusedOp kLinearBackW   = {"linear_back_w", false, run_linear_back_w};
const FusedOp kSumRows       = {"sum_rows", false, run_sum_rows};
const FusedOp kLayerNorm     = {"layer_norm", true, run_layer_norm};
const FusedOp kRmsNorm       = {"rms_norm", true, run_rms_norm};
const FusedOp kNormBackX     = {"norm_back_x", false, run_norm_back_x};
const FusedOp kNormBackW     = {"norm_back_w", false, run_norm_back_w};
const FusedOp kGelu          = {"gelu", true, run_gelu};
const FusedOp kGeluBack      = {"gelu_back", false, run_gelu_back};
const FusedOp kSwiglu        = {"swiglu", true, run_swiglu};
const FusedOp kSwigluBack    = {"swiglu_back", false, run_swiglu_back};
const FusedOp kDropout       = {"dropout", true, run_dropout};
const FusedOp kRope          = {"rope", false, run_rope};
const FusedOp kAttention     = {"attention", false, run_attention};
const FusedOp kAttentionBack = {"attention_back", false, run_attention_back};
const FusedOp kEmbedding     = {"embedding", false, run_embedding};
const FusedOp kEmbeddingBack = {"embedding_back", false, run_embedding_back};
const FusedOp kPositionBack  = {"position_back", false, run_position_back};
const FusedOp kCrossEntropy  = {"cross_entropy", false, run_cross_entropy};
const FusedOp kAccumulate    = {"accumulate", false, run_accumulate};

}  // namespace gt
