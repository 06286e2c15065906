#include "ggml-train/cuda/table.h"

namespace gt::cuda {

const Kernels & kernels() {
#define GT_CUDA_ROW(name) .name = cuda::name,
    static const Kernels table  = {GT_CUDA_KERNELS(GT_CUDA_ROW)};
#undef GT_CUDA_ROW
    return table;
}

}  // namespace gt::cuda
