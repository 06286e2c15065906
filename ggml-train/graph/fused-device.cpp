// Our nodes on a device, and the casts of ggml's between them: a run of them needs no wait.
#include "ggml-train/cuda/table.h"
#include "ggml-train/graph/linear-products.h"

#include <unordered_map>

namespace gt {

using cuda::Kernels;

constexpr cuda::Stream kStream = nullptr;
constexpr float        kAdd    = 1.0f;  // beta of all gradients

static cuda::Out out(const ggml_tensor * t) {
    return t->type == GGML_TYPE_BF16 ? cuda::Out(static_cast<uint16_t *>(t->data)) : data(t);
}

// Where element `i` of a tensor is.
static const void * element(const ggml_tensor * t, int64_t i) {
    return static_cast<const char *>(t->data) + i * static_cast<int64_t>(ggml_element_size(t));
}

static void run_product(const Kernels & k, const LinearProduct & product) {
    const cpu::Gemm & g = product.g;
    k.gemm(
        kStream, {.ta       = g.ta,
                  .tb       = g.tb,
                  .M        = g.M,
                  .N        = g.N,
                  .K        = g.K,
                  .bf16     = product.A->type == GGML_TYPE_BF16,
                  .A        = element(product.A, product.a_at),
                  .lda      = g.lda,
                  .B        = element(product.B, product.b_at),
                  .ldb      = g.ldb,
                  .C        = g.C,
                  .ldc      = g.ldc,
                  .bias     = g.bias,
                  .residual = g.beta == 0.0f ? g.residual : g.C}
    );
}

static void linear(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    each_product_of_linear(y, p, [&](const LinearProduct & product) { run_product(k, product); });
}

static void linear_back_x(const Kernels & k, const ggml_tensor * dx, const FusedParams & p) {
    each_product_of_linear_back_x(dx, p, [&](const LinearProduct & product) {
        run_product(k, product);
    });
}

static void linear_back_w(const Kernels & k, const ggml_tensor * dw, const FusedParams & p) {
    run_product(k, product_of_linear_back_w(dw, p, kAdd));
}

static void cast(const Kernels & k, const ggml_tensor * y, const FusedParams &) {
    k.round_bf16(kStream, ggml_nelements(y), data(y->src[0]), static_cast<uint16_t *>(y->data));
}

static void sum_rows(const Kernels & k, const ggml_tensor * db, const FusedParams & p) {
    const ggml_tensor * dy = db->src[1];
    const void *        x  = element(dy, p.i[0]);
    const cuda::In      in = dy->type == GGML_TYPE_BF16 ? cuda::In(static_cast<const uint16_t *>(x))
                                                        : static_cast<const float *>(x);
    k.sum_rows(kStream, rows(dy), db->ne[0], in, dy->ne[0], kAdd, data(db));
}

static void layer_norm(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    const ggml_tensor * x = y->src[0];
    k.layer_norm(
        kStream, rows(x), x->ne[0], p.f[0], data(x), data(y->src[1]), data(y->src[2]), out(y),
        data(y->src[3])
    );
}

static void rms_norm(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    const ggml_tensor * x = y->src[0];
    k.rms_norm(
        kStream, rows(x), x->ne[0], p.f[0], data(x), data(y->src[1]), out(y), data(y->src[2])
    );
}

static void norm_back_x(const Kernels & k, const ggml_tensor * dx, const FusedParams & p) {
    const auto kernel = p.i[0] ? k.rms_norm_back : k.layer_norm_back;
    kernel(
        kStream, rows(dx), dx->ne[0], data(dx->src[0]), data(dx->src[1]), data(dx->src[2]),
        data(dx->src[3]), data(dx->src[4]), data(dx)
    );
}

static void norm_back_w(const Kernels & k, const ggml_tensor * dw, const FusedParams &) {
    const ggml_tensor * dy = dw->src[1];
    k.norm_back_params(
        kStream, rows(dy), dy->ne[0], data(dy), data(dw->src[2]), data(dw->src[3]), kAdd, data(dw),
        data(dw->src[5])
    );
}

static void gelu(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    k.gelu(kStream, ggml_nelements(y), cuda::Gelu(p.i[0]), data(y->src[0]), out(y));
}

static void gelu_back(const Kernels & k, const ggml_tensor * dx, const FusedParams & p) {
    k.gelu_back(
        kStream, ggml_nelements(dx), cuda::Gelu(p.i[0]), data(dx->src[0]), data(dx->src[1]), out(dx)
    );
}

static void swiglu(const Kernels & k, const ggml_tensor * y, const FusedParams &) {
    k.swiglu(kStream, ggml_nelements(y), data(y->src[0]), data(y->src[1]), out(y));
}

static void swiglu_back(const Kernels & k, const ggml_tensor * both, const FusedParams &) {
    const int64_t count = ggml_nelements(both) / 2;
    k.swiglu_back(
        kStream, count, data(both->src[0]), data(both->src[1]), data(both->src[2]), data(both),
        data(both) + count
    );
}

static void attention(const Kernels & k, const ggml_tensor * o, const FusedParams & p) {
    const auto kernel = p.i[5] ? k.attention_bf16 : k.attention;
    kernel(kStream, attention_of(p, rows(o), o->src[2]), data(o->src[0]), data(o), data(o->src[1]));
}

static void attention_back(const Kernels & k, const ggml_tensor * dqkv, const FusedParams & p) {
    const auto run = [&](auto kernel, auto to) {
        kernel(
            kStream, attention_of(p, rows(dqkv), dqkv->src[5]), data(dqkv->src[0]),
            data(dqkv->src[1]), data(dqkv->src[2]), data(dqkv->src[3]), data(dqkv->src[4]), to
        );
    };
    p.i[5] ? run(k.attention_bf16_back, out(dqkv)) : run(k.attention_back, data(dqkv));
}

static void embedding(const Kernels & k, const ggml_tensor * x, const FusedParams & p) {
    k.embedding(
        kStream, rows(x), p.i[0], x->ne[0], ints(x->src[1]), data(x->src[0]), data(x->src[2]),
        data(x)
    );
}

static void embedding_back(const Kernels & k, const ggml_tensor * grad, const FusedParams &) {
    const ggml_tensor * dx = grad->src[1];
    k.embedding_back(
        kStream, rows(dx), grad->ne[1], grad->ne[0], ints(grad->src[2]), data(dx), kAdd, data(grad)
    );
}

static void position_back(const Kernels & k, const ggml_tensor * grad, const FusedParams & p) {
    const ggml_tensor * dx = grad->src[1];
    k.position_back(kStream, rows(dx) / p.i[0], p.i[0], grad->ne[0], data(dx), kAdd, data(grad));
}

static void cross_entropy(const Kernels & k, const ggml_tensor * y, const FusedParams & p) {
    const ggml_tensor * logits = y->src[0];
    const cuda::Out     none(static_cast<float *>(nullptr));
    k.cross_entropy(
        kStream, rows(logits), p.i[0], logits->ne[0], data(logits), ints(y->src[1]), p.f[0],
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
    if (node->op == GGML_OP_CPY && node->src[0]->type == GGML_TYPE_F32 &&
        node->type == GGML_TYPE_BF16 && ggml_is_contiguous(node->src[0]) &&
        ggml_is_contiguous(node)) {
        return cast;
    }
    const auto found = runs.find(fused_op(node));
    return found == runs.end() ? nullptr : found->second;
}

}  // namespace gt
