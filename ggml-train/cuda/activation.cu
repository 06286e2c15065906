#include "ggml-train/cuda/activation.cuh"

namespace gt::cuda {

void gelu(Stream s, int64_t n, Gelu kind, const float * x, float * y) {
    const dim3 grid = blocks_for(n, kThreads);
    kind == Gelu::erf ? launch(gelu_kernel<Gelu::erf>, grid, kThreads, 0, s, n, x, y)
                      : launch(gelu_kernel<Gelu::tanh>, grid, kThreads, 0, s, n, x, y);
}

void gelu_back(Stream s, int64_t n, Gelu kind, const float * x, const float * dy, float * dx) {
    const dim3 grid = blocks_for(n, kThreads);
    kind == Gelu::erf ? launch(gelu_back_kernel<Gelu::erf>, grid, kThreads, 0, s, n, x, dy, dx)
                      : launch(gelu_back_kernel<Gelu::tanh>, grid, kThreads, 0, s, n, x, dy, dx);
}

void swiglu(Stream s, int64_t n, const float * gate, const float * up, float * y) {
    launch(swiglu_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, gate, up, y);
}

void swiglu_back(
    Stream        s,
    int64_t       n,
    const float * gate,
    const float * up,
    const float * dy,
    float *       dgate,
    float *       dup
) {
    launch(
        swiglu_back_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, gate, up, dy, dgate, dup
    );
}

}  // namespace gt::cuda
