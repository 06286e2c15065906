#include "ggml-train/cuda/table.h"

namespace gt::cuda {

const Kernels & kernels() {
    static const Kernels table = {
        .n_devices        = cuda::n_devices,
        .set_device       = cuda::set_device,
        .copy_in          = cuda::copy_in,
        .copy_out         = cuda::copy_out,
        .synchronize      = cuda::synchronize,
        .layer_norm       = cuda::layer_norm,
        .rms_norm         = cuda::rms_norm,
        .layer_norm_back  = cuda::layer_norm_back,
        .rms_norm_back    = cuda::rms_norm_back,
        .norm_back_params = cuda::norm_back_params,
        .sum_rows         = cuda::sum_rows,
        .gelu             = cuda::gelu,
        .gelu_back        = cuda::gelu_back,
        .swiglu           = cuda::swiglu,
        .swiglu_back      = cuda::swiglu_back,
        .embedding        = cuda::embedding,
        .embedding_back   = cuda::embedding_back,
        .position_back    = cuda::position_back,
        .cross_entropy    = cuda::cross_entropy,
        .attention        = cuda::attention,
        .attention_back   = cuda::attention_back,
        .demo_extract     = cuda::demo_extract,
        .demo_give_back   = cuda::demo_give_back,
        .demo_merge       = cuda::demo_merge,
        .take_sign        = cuda::take_sign,
        .sgd              = cuda::sgd,
        .adamw            = cuda::adamw,
        .nesterov         = cuda::nesterov,
        .nesterov_sign    = cuda::nesterov_sign,
        .orthogonalise    = cuda::orthogonalise,
        .sums_of_squares  = cuda::sums_of_squares,
        .digests          = cuda::digests,
    };
    return table;
}

}  // namespace gt::cuda
