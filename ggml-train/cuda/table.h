// ggml-train/cuda/table.h — what an optimizer runs on a device, as a table of functions: a program
// holds two of them, a GPU's (gt-cuda) and the emulator's (tests/emulated.cpp), under the same names.
#pragma once

#include "ggml-train/cuda/kernels.h"
#include "ggml-train/cuda/muon.h"

namespace gt::cuda {

struct Kernels {
    decltype(&cuda::n_devices)       n_devices;
    decltype(&cuda::set_device)      set_device;
    decltype(&cuda::copy_in)         copy_in;
    decltype(&cuda::copy_out)        copy_out;
    decltype(&cuda::synchronize)     synchronize;
    decltype(&cuda::demo_extract)    demo_extract;
    decltype(&cuda::demo_give_back)  demo_give_back;
    decltype(&cuda::demo_merge)      demo_merge;
    decltype(&cuda::take_sign)       take_sign;
    decltype(&cuda::sgd)             sgd;
    decltype(&cuda::adamw)           adamw;
    decltype(&cuda::nesterov)        nesterov;
    decltype(&cuda::nesterov_sign)   nesterov_sign;
    decltype(&cuda::orthogonalise)   orthogonalise;
    decltype(&cuda::sums_of_squares) sums_of_squares;
    decltype(&cuda::digests)         digests;
};

// Those of the library that this file is compiled into.
const Kernels & kernels();

}  // namespace gt::cuda
