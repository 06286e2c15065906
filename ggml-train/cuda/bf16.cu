#include "ggml-train/cuda/bf16.cuh"

namespace gt::cuda {

void convert(Stream s, int64_t n, In x, Out y) {
    const dim3 grid = blocks_of_fours(n);
    if (y.bf16) {
        launch(
            convert_kernel<float, uint16_t>, grid, kThreads, 0, s, n, typed<float>(x),
            typed<uint16_t>(y)
        );
    } else {
        launch(
            convert_kernel<uint16_t, float>, grid, kThreads, 0, s, n, typed<uint16_t>(x),
            typed<float>(y)
        );
    }
}

}  // namespace gt::cuda
