#include "ggml-train/cuda/bf16.cuh"

namespace gt::cuda {

void round_bf16(Stream s, int64_t n, const float * x, uint16_t * y) {
    launch(round_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, x, y);
}

}  // namespace gt::cuda
