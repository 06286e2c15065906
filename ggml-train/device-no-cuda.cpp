// ggml-train/device-no-cuda.cpp — a program that was built without GT_CUDA has no GPUs.
#include "ggml-train/ggml-device.h"

namespace gt {

const cuda::Kernels & cuda_kernels(int) {
    throw Error(
        "--device cuda: this program was built without CUDA; configure with -DGT_CUDA=ON, or use "
        "--device cpu"
    );
}

}  // namespace gt
