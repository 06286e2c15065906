#include "ggml-train/cuda/activation.cuh"

namespace gt::cuda {

void gelu(Stream s, int64_t n, Gelu kind, In x, Out y) {
    with_type(y.bf16, [&]<class T>(T *) {
        const auto run = kind == Gelu::erf ? gelu_kernel<Gelu::erf, T> : gelu_kernel<Gelu::tanh, T>;
        launch(run, blocks_of_fours(n), kThreads, 0, s, n, typed<T>(x), typed<T>(y));
    });
}

void gelu_back(Stream s, int64_t n, Gelu kind, In x, In dy, Out dx) {
    with_type(dx.bf16, [&]<class T>(T *) {
        const auto run =
            kind == Gelu::erf ? gelu_back_kernel<Gelu::erf, T> : gelu_back_kernel<Gelu::tanh, T>;
        launch(run, blocks_of_fours(n), kThreads, 0, s, n, typed<T>(x), typed<T>(dy), typed<T>(dx));
    });
}

void swiglu(Stream s, int64_t n, In gate, In up, Out y) {
    with_type(y.bf16, [&]<class T>(T *) {
        launch(
            swiglu_kernel<T>, blocks_of_fours(n), kThreads, 0, s, n, typed<T>(gate), typed<T>(up),
            typed<T>(y)
        );
    });
}

void swiglu_back(Stream s, int64_t n, In gate, In up, In dy, Out dgate, Out dup) {
    with_type(dy.bf16, [&]<class T>(T *) {
        launch(
            swiglu_back_kernel<T>, blocks_of_fours(n), kThreads, 0, s, n, typed<T>(gate),
            typed<T>(up), typed<T>(dy), typed<T>(dgate), typed<T>(dup)
        );
    });
}

}  // namespace gt::cuda
