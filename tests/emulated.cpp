// tests/emulated.cpp — our CUDA kernels under the emulator, as a library that programs load for
// `--device fake:N` (ggml-train/ggml-device.cpp). Everything but this function stays inside, so that
// a program may have the same kernels for GPUs.
#include "ggml-train/cuda/table.h"

extern "C" __attribute__((visibility("default"))) const gt::cuda::Kernels * gt_emulated_kernels() {
    return &gt::cuda::kernels();
}
