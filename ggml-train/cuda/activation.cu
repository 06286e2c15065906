#include "ggml-train/cuda/activation.cuh"

#include <type_traits>

namespace gt::cuda {

void gelu(Stream s, int64_t n, Gelu kind, const float * x, Out y) {
    with_type(y, [&](auto * to) {
        using T        = std::remove_pointer_t<decltype(to)>;
        const auto run = kind == Gelu::erf ? gelu_kernel<Gelu::erf, T> : gelu_kernel<Gelu::tanh, T>;
        launch(run, blocks_for(n, kThreads), kThreads, 0, s, n, x, to);
    });
}

void gelu_back(Stream s, int64_t n, Gelu kind, const float * x, const float * dy, Out dx) {
    with_type(dx, [&](auto * to) {
        using T = std::remove_pointer_t<decltype(to)>;
        const auto run =
            kind == Gelu::erf ? gelu_back_kernel<Gelu::erf, T> : gelu_back_kernel<Gelu::tanh, T>;
        launch(run, blocks_for(n, kThreads), kThreads, 0, s, n, x, dy, to);
    });
}

void swiglu(Stream s, int64_t n, const float * gate, const float * up, Out y) {
    with_type(y, [&](auto * to) {
        using T = std::remove_pointer_t<decltype(to)>;
        launch(swiglu_kernel<T>, blocks_for(n, kThreads), kThreads, 0, s, n, gate, up, to);
    });
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
