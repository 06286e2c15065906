// ggml-train/cuda/table.h — what graphs and optimizers run on a device, as a table of functions: a
// program holds two of them, a GPU's (gt-cuda) and the emulator's (tests/emulated.cpp), under the
// same names.
#pragma once

#include "ggml-train/cuda/kernels.h"
#include "ggml-train/cuda/muon.h"

namespace gt::cuda {

struct Kernels {
    decltype(&cuda::n_devices)        n_devices;
    decltype(&cuda::set_device)       set_device;
    decltype(&cuda::copy_in)          copy_in;
    decltype(&cuda::copy_out)         copy_out;
    decltype(&cuda::synchronize)      synchronize;
    decltype(&cuda::layer_norm)       layer_norm;
    decltype(&cuda::rms_norm)         rms_norm;
    decltype(&cuda::layer_norm_back)  layer_norm_back;
    decltype(&cuda::rms_norm_back)    rms_norm_back;
    decltype(&cuda::norm_back_params) norm_back_params;
    decltype(&cuda::sum_rows)         sum_rows;
    decltype(&cuda::gelu)             gelu;
    decltype(&cuda::gelu_back)        gelu_back;
    decltype(&cuda::swiglu)           swiglu;
    decltype(&cuda::swiglu_back)      swiglu_back;
    decltype(&cuda::embedding)        embedding;
    decltype(&cuda::embedding_back)   embedding_back;
    decltype(&cuda::position_back)    position_back;
    decltype(&cuda::cross_entropy)    cross_entropy;
    decltype(&cuda::attention)        attention;
    decltype(&cuda::attention_back)   attention_back;
    decltype(&cuda::demo_extract)     demo_extract;
    decltype(&cuda::demo_give_back)   demo_give_back;
    decltype(&cuda::demo_merge)       demo_merge;
    decltype(&cuda::take_sign)        take_sign;
    decltype(&cuda::sgd)              sgd;
    decltype(&cuda::adamw)            adamw;
    decltype(&cuda::nesterov)         nesterov;
    decltype(&cuda::nesterov_sign)    nesterov_sign;
    decltype(&cuda::orthogonalise)    orthogonalise;
    decltype(&cuda::sums_of_squares)  sums_of_squares;
    decltype(&cuda::digests)          digests;
};

// Those of the library that this file is compiled into.
const Kernels & kernels();

}  // namespace gt::cuda
