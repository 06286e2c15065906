#include "ggml-train/cuda/table.h"

namespace gt::cuda {

const Kernels & kernels() {
    static const Kernels table = {
        .n_devices       = cuda::n_devices,
        .set_device      = cuda::set_device,
        .copy_in         = cuda::copy_in,
        .copy_out        = cuda::copy_out,
        .synchronize     = cuda::synchronize,
        .demo_extract    = cuda::demo_extract,
        .demo_give_back  = cuda::demo_give_back,
        .demo_merge      = cuda::demo_merge,
        .take_sign       = cuda::take_sign,
        .sgd             = cuda::sgd,
        .adamw           = cuda::adamw,
        .nesterov        = cuda::nesterov,
        .nesterov_sign   = cuda::nesterov_sign,
        .orthogonalise   = cuda::orthogonalise,
        .sums_of_squares = cuda::sums_of_squares,
        .digests         = cuda::digests,
    };
    return table;
}

}  // namespace gt::cuda
