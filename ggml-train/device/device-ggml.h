// ggml-train/device/device-ggml.h — a ggml backend as a Device (base/device.h): its memory, our kernels.
#pragma once

#include "ggml-train/base/device.h"

#include <ggml-backend.h>

namespace gt {

// index: the number of the device for the kernels (cudaSetDevice). The backend must outlive it.
std::unique_ptr<Device>
make_device(ggml_backend_t backend, const cuda::Kernels & kernels, int index);

}  // namespace gt
