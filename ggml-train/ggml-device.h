// ggml-train/ggml-device.h — the Device of a ggml backend that has memory of its own: a GPU, or the
// fake device with the emulated kernels.
#pragma once

#include "ggml-train/device.h"

#include <ggml-backend.h>

namespace gt {

// The backend must outlive it. kernels: one of the two below, asked when one is first needed.
[[nodiscard]] std::unique_ptr<Device>
make_device(ggml_backend_t backend, const cuda::Kernels & (*kernels)(int), int index);

// Where a library lies that is built with the tests, beside the program. An Error if it is not there.
std::string test_library(const std::string & name);

// Our kernels as the emulator runs them (libgt-emulated.so).
const cuda::Kernels & emulated_kernels(int index);

// Our kernels for GPU `index`. An Error, in one line, if the
// program was built without CUDA, or if there is no driver or no such GPU.
const cuda::Kernels & cuda_kernels(int index);

}  // namespace gt
