#include "ggml-train/cuda/bf16.cuh"

namespace gt::cuda {

__global__ void __launch_bounds__(kThreads) round_kernel(int64_t n, const float * x, uint16_t * y) {
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads) {
        y[i] = to_bf16(x[i]);
    }
}

void round_bf16(Stream s, int64_t n, const float * x, uint16_t * y) {
    launch(round_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, x, y);
}

}  // namespace gt::cuda
