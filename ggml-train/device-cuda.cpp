// ggml-train/device-cuda.cpp — GPUs, in a program that was built with GT_CUDA.
#include "ggml-train/cuda/table.h"
#include "ggml-train/ggml-device.h"

namespace gt {

const cuda::Kernels & cuda_kernels(int index) {
    const cuda::Kernels & kernels = cuda::kernels();
    const char *          why     = "";
    const int             n       = kernels.n_devices(&why);
    if (n == 0) {
        throw Error(format("--device cuda: no usable GPU (%s); use --device cpu", why));
    }
    if (index >= n) {
        throw Error(format("there is no cuda:%d; this machine has %d GPUs", index, n));
    }
    return kernels;
}

}  // namespace gt
