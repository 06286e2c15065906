// ggml-train/cuda/table.h — the kernels that graphs and optimizers run on a device, as a table of functions.
// A process may hold two tables: that of the GPUs (gt-cuda), and that of a backend module
// (device/registry.h), which has the same functions under the same names.
#pragma once

#include "ggml-train/cuda/kernels.h"
#include "ggml-train/cuda/muon.h"
#include "ggml-train/cuda/rows.h"

// Every function of the table: device and copies, forward and backward, the optimizer.
// clang-format off
#define GT_CUDA_KERNELS(X)                                                                         \
    X(n_devices) X(set_device) X(has_tensor_cores) X(copy_in) X(copy_out) X(synchronize)           \
    X(record) X(wait_for)                                                                          \
    X(gemm) X(use_tf32) X(convert)                                                                 \
    X(layer_norm) X(rms_norm) X(layer_norm_back) X(rms_norm_back) X(norm_back_params) X(sum_rows)  \
    X(gelu) X(gelu_back) X(swiglu) X(swiglu_back)                                                  \
    X(embedding) X(embedding_back) X(position_back) X(cross_entropy) X(attention) X(attention_back)\
    X(attention_bf16) X(attention_bf16_back)                                                       \
    X(demo_extract) X(demo_give_back) X(demo_merge)                                                \
    X(rows_extract) X(rows_give_back) X(rows_merge)                                                \
    X(local_change) X(local_sums) X(local_scalars) X(local_apply)                                  \
    X(set_zero) X(fold) X(take_sign) X(sgd) X(adamw) X(adamw_q8)                                   \
    X(nesterov) X(nesterov_sign) X(orthogonalise)                                                  \
    X(sums_of_squares) X(digests)
// clang-format on

namespace gt::cuda {

struct Kernels {
#define GT_CUDA_FIELD(name) decltype(&cuda::name) name;
    GT_CUDA_KERNELS(GT_CUDA_FIELD)
#undef GT_CUDA_FIELD
};

// The table of the library that table.cpp is compiled into.
const Kernels & kernels();

}  // namespace gt::cuda
