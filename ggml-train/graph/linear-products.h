// ggml-train/graph/linear-products.h — the matrix products that our linear nodes (fused.h) are made of, for the two
// tables of kernels: fused.cpp for the CPU, fused-device.cpp for devices.
#pragma once

#include "ggml-train/graph/fused-args.h"

namespace gt {

// g without its arrays: these are elements of tensors, F32 or not. The residual is at the place that C is at.
struct LinearProduct {
    cpu::Gemm           g;
    const ggml_tensor * A    = nullptr;
    const ggml_tensor * B    = nullptr;
    const ggml_tensor * C    = nullptr;
    int64_t             a_at = 0, b_at = 0, c_at = 0;
    const ggml_tensor * bias     = nullptr;
    const ggml_tensor * residual = nullptr;
    const ggml_tensor * inner =
        nullptr;  // what the GELU that follows reads; backward: that of its slope
    const ggml_tensor * a_sums = nullptr;
};

// i0: number of weights, i1: has biases, i2: has residual, i3: every weight has columns of x of its own, i4: is the
// GELU of the sum, with one weight.
template <class Run>
void each_product_of_linear(const ggml_tensor * y, const FusedParams & p, const Run & run) {
    const ggml_tensor * x        = y->src[0];
    const int           after    = 1 + p.i[0] * (p.i[1] ? 2 : 1);
    const ggml_tensor * residual = p.i[2] ? y->src[after] : nullptr;
    int64_t             column   = 0;
    for (int w = 0; w < p.i[0]; ++w) {
        const ggml_tensor * weight = y->src[1 + w];
        run(LinearProduct{
            .g =
                {.tb  = true,
                 .M   = rows(x),
                 .N   = weight->ne[1],
                 .K   = weight->ne[0],
                 .lda = x->ne[0],
                 .ldb = weight->ne[0],
                 .ldc = y->ne[0]},
            .A        = x,
            .B        = weight,
            .C        = y,
            .a_at     = p.i[3] ? w * weight->ne[0] : 0,
            .c_at     = column,
            .bias     = p.i[1] ? y->src[1 + p.i[0] + w] : nullptr,
            .residual = residual,
            .inner    = p.i[4] ? y->src[after + p.i[2]] : nullptr});
        column += weight->ne[1];
    }
}

// The sources of kLinearBackX. i0: number of weights, i1: has add, i2: in place (the target comes first), i3: as
// above, i4: times the slope of the GELU at the last source, with one weight.
struct LinearBackX {
    LinearBackX(const ggml_tensor * dx, const FusedParams & p)
        : dy(dx->src[p.i[2]]), add(p.i[1] ? dx->src[p.i[2] + 1] : nullptr),
          weights(dx->src + p.i[2] + 1 + p.i[1]) {}

    const ggml_tensor *   dy;
    const ggml_tensor *   add;
    ggml_tensor * const * weights;
};

template <class Run>
void each_product_of_linear_back_x(const ggml_tensor * dx, const FusedParams & p, const Run & run) {
    const LinearBackX back(dx, p);
    int64_t           column = 0;
    for (int w = 0; w < p.i[0]; ++w) {
        const ggml_tensor * weight = back.weights[w];
        const int64_t       at     = p.i[3] ? w * weight->ne[0] : 0;
        const bool          first  = w == 0 || p.i[3];
        run(LinearProduct{
            .g =
                {.M    = rows(back.dy),
                 .N    = weight->ne[0],
                 .K    = weight->ne[1],
                 .lda  = back.dy->ne[0],
                 .ldb  = weight->ne[0],
                 .ldc  = dx->ne[0],
                 .beta = first ? 0.0f : 1.0f},
            .A        = back.dy,
            .B        = weight,
            .C        = dx,
            .a_at     = column,
            .c_at     = at,
            .residual = first ? back.add : nullptr,
            .inner    = p.i[4] ? back.weights[p.i[0]] : nullptr});
        column += weight->ne[1];
    }
}

// Added to dw beta times. i0, i1: first columns of dy and x that belong to this weight.
inline LinearProduct
product_of_linear_back_w(const ggml_tensor * dw, const FusedParams & p, float beta) {
    const ggml_tensor * dy = dw->src[1];
    const ggml_tensor * x  = dw->src[2];
    return {
        .g =
            {.ta   = true,
             .M    = dw->ne[1],
             .N    = dw->ne[0],
             .K    = rows(x),
             .lda  = dy->ne[0],
             .ldb  = x->ne[0],
             .ldc  = dw->ne[0],
             .beta = beta},
        .A      = dy,
        .B      = x,
        .C      = dw,
        .a_at   = p.i[0],
        .b_at   = p.i[1],
        .a_sums = dw->src[4]};
}

}  // namespace gt
