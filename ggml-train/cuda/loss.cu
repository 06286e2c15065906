#include "ggml-train/cuda/loss.cuh"

namespace gt::cuda {

void cross_entropy(
    Stream          s,
    int64_t         rows,
    int64_t         V,
    int64_t         ld,
    In              logits,
    const int32_t * labels,
    float           smoothing,
    const float *   scale,
    Out             grad,
    float *         loss
) {
    with_type(logits.bf16, [&]<class T>(T *) {
        launch(
            cross_entropy_kernel<T>, blocks_for(rows, 1), kThreads, 0, s, rows, V, ld,
            typed<T>(logits), labels, smoothing, scale, grad.at ? typed<T>(grad) : nullptr, loss
        );
    });
}

}  // namespace gt::cuda
