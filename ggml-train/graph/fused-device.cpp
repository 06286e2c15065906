// Our nodes on a device, and the casts of ggml's between them: a run of them needs no wait.
#include "ggml-train/cuda/table.h"
#include "ggml-train/graph/linear-products.h"

#include <unordered_map>

namespace gt {

using cuda::Kernels;

constexpr cuda::Stream kStream = nullptr;
constexpr float        kAdd    = 1.0f;  // beta of all gradients

static cuda::Out out(const ggml_tensor * t, int64_t i = 0) {
    return t->type == GGML_TYPE_BF16 ? cuda::Out(static_cast<uint16_t *>(t->data) + i)
                                     : data(t) + i;
}

static cuda::In in(const ggml_tensor * t, int64_t i = 0) {
    return t ? out(t, i) : cuda::In(static_cast<const float *>(nullptr));
}

static uint16_t * halves(const ggml_tensor * t) {
    return static_cast<uint16_t *>(t->data);
}

static void run_product(
    const Kernels &       k,
    const LinearProduct & product,
    cuda::Gemm::Then      then = cuda::Gemm::Then::nothing
) {
    const cpu::Gemm & g = product.g;
    const cuda::Out   C = out(product.C, product.c_at);
    k.gemm(
        kStream, {.ta       = g.ta,
                  .tb       = g.tb,
                  .M        = g.M,
                  .N        = g.N,
                  .K        = g.K,
                  .bf16     = product.A->type == GGML_TYPE_BF16,
                  .A        = in(product.A, product.a_at).at,
                  .lda      = g.lda,
                  .B        = in(product.B, product.b_at).at,
                  .ldb      = g.ldb,
                  .C        = C,
                  .ldc      = g.ldc,
                  .bias     = in(product.bias).at,
                  .residual = g.beta == 0.0f ? in(product.residual, product.c_at).at : C.at,
                  .then     = product.inner ? then : cuda::Gemm::Then::nothing,
                  .inner    = product.inner ? halves(product.inner) : nullptr,
                  .a_sums   = data(product.a_sums)}
    );
}

static void linear(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    each_product_of_linear(y, p, [&](const LinearProduct & product) {
        run_product(k, product, cuda::Gemm::Then::gelu);
    });
}

static void linear_back_x(const Kernels & k, const ggml_tensor * dx, const FusedParams & p) {
    each_product_of_linear_back_x(dx, p, [&](const LinearProduct & product) {
        run_product(k, product, cuda::Gemm::Then::gelu_back);
    });
}

static void linear_back_w(const Kernels & k, const ggml_tensor * dw, const FusedParams & p) {
    run_product(k, product_of_linear_back_w(dw, p, kAdd));
}

static void convert(const Kernels & k, const ggml_tensor * y, const FusedParams &) {
    k.convert(kStream, ggml_nelements(y), in(y->src[0]), out(y));
}

static void sum_rows(const Kernels & k, const ggml_tensor * db, const FusedParams & p) {
    const ggml_tensor * dy = db->src[1];
    k.sum_rows(kStream, rows(dy), db->ne[0], in(dy, p.i[0]), dy->ne[0], kAdd, data(db));
}

static void layer_norm(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    const ggml_tensor * x = y->src[0];
    k.layer_norm(
        kStream, rows(x), x->ne[0], p.f[0], in(x), data(y->src[1]), data(y->src[2]), out(y),
        data(y->src[3])
    );
}

static void rms_norm(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    const ggml_tensor * x = y->src[0];
    k.rms_norm(kStream, rows(x), x->ne[0], p.f[0], in(x), data(y->src[1]), out(y), data(y->src[2]));
}

static void norm_back_x(const Kernels & k, const ggml_tensor * dx, const FusedParams & p) {
    const auto kernel = p.i[0] ? k.rms_norm_back : k.layer_norm_back;
    kernel(
        kStream, rows(dx), dx->ne[0], in(dx->src[0]), in(dx->src[1]), data(dx->src[2]),
        data(dx->src[3]), in(dx->src[4]), out(dx)
    );
}

static void norm_back_w(const Kernels & k, const ggml_tensor * dw, const FusedParams &) {
    const ggml_tensor * dy = dw->src[1];
    k.norm_back_params(
        kStream, rows(dy), dy->ne[0], in(dy), in(dw->src[2]), data(dw->src[3]), kAdd, data(dw),
        data(dw->src[5])
    );
}

static void gelu(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    k.gelu(kStream, ggml_nelements(y), cuda::Gelu(p.i[0]), in(y->src[0]), out(y));
}

static void gelu_back(const Kernels & k, const ggml_tensor * dx, const FusedParams & p) {
    k.gelu_back(
        kStream, ggml_nelements(dx), cuda::Gelu(p.i[0]), in(dx->src[0]), in(dx->src[1]), out(dx)
    );
}

static void swiglu(const Kernels & k, const ggml_tensor * y, const FusedParams &) {
    k.swiglu(kStream, ggml_nelements(y), in(y->src[0]), in(y->src[1]), out(y));
}

static void swiglu_back(const Kernels & k, const ggml_tensor * both, const FusedParams &) {
    const int64_t count = ggml_nelements(both) / 2;
    k.swiglu_back(
        kStream, count, in(both->src[0]), in(both->src[1]), in(both->src[2]), out(both),
        out(both, count)
    );
}

static void attention(const Kernels & k, const ggml_tensor * o, const FusedParams & p) {
    const cpu::Attention a   = attention_of(p, rows(o), o->src[2]);
    const ggml_tensor *  qkv = o->src[0], *lse = o->src[1];
    if (o->type == GGML_TYPE_BF16) {
        k.attention_bf16(kStream, a, halves(qkv), halves(o), data(lse));
    } else {
        k.attention(kStream, a, data(qkv), data(o), data(lse));
    }
}

static void attention_back(const Kernels & k, const ggml_tensor * dqkv, const FusedParams & p) {
    const cpu::Attention a   = attention_of(p, rows(dqkv), dqkv->src[5]);
    const ggml_tensor *  qkv = dqkv->src[0], *o = dqkv->src[1], *lse = dqkv->src[2],
                      *d_o = dqkv->src[3], *delta = dqkv->src[4];
    if (dqkv->type == GGML_TYPE_BF16) {
        k.attention_bf16_back(
            kStream, a, halves(qkv), halves(o), data(lse), halves(d_o), data(delta), halves(dqkv)
        );
    } else {
        k.attention_back(
            kStream, a, data(qkv), data(o), data(lse), data(d_o), data(delta), data(dqkv)
        );
    }
}

static void embedding(const Kernels & k, const ggml_tensor * x, const FusedParams & p) {
    k.embedding(
        kStream, rows(x), p.i[0], x->ne[0], ints(x->src[1]), data(x->src[0]), data(x->src[2]),
        out(x)
    );
}

static void embedding_back(const Kernels & k, const ggml_tensor * grad, const FusedParams &) {
    const ggml_tensor * dx = grad->src[1];
    k.embedding_back(
        kStream, rows(dx), grad->ne[1], grad->ne[0], ints(grad->src[2]), in(dx), kAdd, data(grad)
    );
}

static void position_back(const Kernels & k, const ggml_tensor * grad, const FusedParams & p) {
    const ggml_tensor * dx = grad->src[1];
    k.position_back(kStream, rows(dx) / p.i[0], p.i[0], grad->ne[0], in(dx), kAdd, data(grad));
}

static void cross_entropy(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    const ggml_tensor * logits = y->src[0];
    const cuda::Out     none(static_cast<float *>(nullptr));
    k.cross_entropy(
        kStream, rows(logits), p.i[0], logits->ne[0], in(logits), ints(y->src[1]), p.f[0],
        data(y->src[2]), p.i[1] ? out(y) : none, data(y->src[3])
    );
}

DeviceRun find_device_run(const ggml_tensor * node) {
    static const std::unordered_map<const FusedOp *, DeviceRun> runs = {
        {&kLinear, linear},
        {&kLinearBackX, linear_back_x},
        {&kLinearBackW, linear_back_w},
        {&kSumRows, sum_rows},
        {&kLayerNorm, layer_norm},
        {&kRmsNorm, rms_norm},
        {&kNormBackX, norm_back_x},
        {&kNormBackW, norm_back_w},
        {&kGelu, gelu},
        {&kGeluBack, gelu_back},
        {&kSwiglu, swiglu},
        {&kSwigluBack, swiglu_back},
        {&kAttention, attention},
        {&kAttentionBack, attention_back},
        {&kEmbedding, embedding},
        {&kEmbeddingBack, embedding_back},
        {&kPositionBack, position_back},
        {&kCrossEntropy, cross_entropy},
    };
    const ggml_type from   = node->src[0] ? node->src[0]->type : node->type;
    const bool      widens = from == GGML_TYPE_BF16 && node->type == GGML_TYPE_F32;
    const bool      rounds = from == GGML_TYPE_F32 && node->type == GGML_TYPE_BF16;
    if (node->op == GGML_OP_CPY && (widens || rounds) && ggml_is_contiguous(node->src[0]) &&
        ggml_is_contiguous(node)) {
        return convert;
    }
    const auto found = runs.find(fused_op(node));
    return found == runs.end() ? nullptr : found->second;
}

}  // namespace gt
