#include "ggml-train/cuda/loss.cuh"

#include <type_traits>

namespace gt::cuda {

void cross_entropy(
    Stream          s,
    int64_t         rows,
    int64_t         V,
    int64_t         ld,
    const float *   logits,
    const int32_t * labels,
    float           smoothing,
    const float *   scale,
    Out             grad,
    float *         loss
) {
    with_type(grad, [&](auto * to) {
        using T = std::remove_pointer_t<decltype(to)>;
        launch(
            cross_entropy_kernel<T>, blocks_for(rows, 1), kThreads, 0, s, rows, V, ld, logits,
            labels, smoothing, scale, to, loss
        );
    });
}

}  // namespace gt::cuda
