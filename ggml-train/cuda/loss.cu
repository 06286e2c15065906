#include "ggml-train/cuda/kernels.h"
#include "ggml-train/cuda/loss.cuh"

namespace gt::cuda {

void cross_entropy(
    Stream          s,
    int64_t         rows,
    int64_t         V,
    int64_t         ld,
    float *         logits,
    const int32_t * labels,
    float           smoothing,
    const float *   scale,
    bool            grad,
    float *         loss
) {
    launch(
        cross_entropy_kernel, blocks_for(rows, 1), kThreads, 0, s, rows, V, ld, logits, labels,
        smoothing, scale, grad, loss
    );
}

}  // namespace gt::cuda
