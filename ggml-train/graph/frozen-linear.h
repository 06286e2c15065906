// ggml-train/graph/frozen-linear.h — products with weights that stay in the type of their file (F16, Q4_K, ...).
//
// A thread turns one window of rows after another into F32 and multiplies it with the F32 kernel: forward and
// backward see the same weights, activations are never rounded, and no matrix is ever whole in F32. ggml's own
// product of quantized weights rounds activations to 8 bits, and has no backward.
#pragma once

#include "ggml-train/cpu/kernels.h"

#include <ggml.h>

namespace gt {

// Values [begin, begin + n) of row `row`. REQUIRES: begin is a multiple of the type's block size.
void read_row(const ggml_tensor * w, int64_t row, int64_t begin, int64_t n, float * out);

// y [M x ldy] = x [M x ldx] * w^T (+ bias) (+ residual, laid out as y), w [K, N].
struct FrozenProduct {
    const ggml_tensor * w        = nullptr;
    int64_t             M        = 0;
    const float *       x        = nullptr;
    int64_t             ldx      = 0;
    float *             y        = nullptr;
    int64_t             ldy      = 0;
    const float *       bias     = nullptr;
    const float *       residual = nullptr;
};
void frozen_linear(cpu::Part part, const FrozenProduct & product);

// dx [M x K] = sum over the weights of dy_i [M x N_i] * w_i (+ add, laid out as dx). The dy_i lie side by side in
// dy [M x ldy]. Weights may have different types.
struct FrozenBack {
    const ggml_tensor * const * weights   = nullptr;
    int                         n_weights = 0;
    int64_t                     M         = 0;
    const float *               dy        = nullptr;
    int64_t                     ldy       = 0;
    const float *               add       = nullptr;
    float *                     dx        = nullptr;
};
void frozen_linear_back(cpu::Part part, const FrozenBack & back);

}  // namespace gt
