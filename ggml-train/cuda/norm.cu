#include "ggml-train/cuda/kernels.h"
#include "ggml-train/cuda/norm.cuh"

namespace gt::cuda {

static dim3 rows_grid(int64_t rows) {
    return blocks_for(rows, kThreads / kWarp);
}
static dim3 columns_grid(int64_t C) {
    return dim3(static_cast<unsigned>((C + kColumns - 1) / kColumns));
}
static const dim3 kColumnBlock(kColumns, kRowGroups);

// Calls fn with null pointers of the types of x and y.
template <class F>
static void with_types(bool x_bf16, bool y_bf16, const F & fn) {
    with_type(x_bf16 && y_bf16, [&](auto * x) {
        if constexpr (sizeof(*x) == 2) {
            fn(x, x);
        } else {
            with_type(y_bf16, [&](auto * y) { fn(x, y); });
        }
    });
}

template <bool kCentred>
static void norm(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    float         eps,
    In            x,
    const float * w,
    const float * b,
    Out           y,
    float *       stats
) {
    with_types(x.bf16, y.bf16, [&]<class X, class Y>(X *, Y *) {
        launch(
            norm_kernel<kCentred, X, Y>, rows_grid(rows), kThreads, 0, s, rows, C, eps, typed<X>(x),
            w, b, typed<Y>(y), stats
        );
    });
}

void layer_norm(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    float         eps,
    In            x,
    const float * w,
    const float * b,
    Out           y,
    float *       stats
) {
    norm<true>(s, rows, C, eps, x, w, b, y, stats);
}

void rms_norm(
    Stream s, int64_t rows, int64_t C, float eps, In x, const float * w, Out y, float * stats
) {
    norm<false>(s, rows, C, eps, x, w, nullptr, y, stats);
}

template <bool kCentred>
static void norm_back(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    In            dy,
    In            x,
    const float * w,
    const float * stats,
    In            add,
    Out           dx
) {
    with_types(x.bf16, dy.bf16, [&]<class X, class Y>(X *, Y *) {
        launch(
            norm_back_kernel<kCentred, X, Y>, rows_grid(rows), kThreads, 0, s, rows, C,
            typed<Y>(dy), typed<X>(x), w, stats, add.at ? typed<X>(add) : nullptr, typed<X>(dx)
        );
    });
}

void layer_norm_back(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    In            dy,
    In            x,
    const float * w,
    const float * stats,
    In            add,
    Out           dx
) {
    norm_back<true>(s, rows, C, dy, x, w, stats, add, dx);
}

void rms_norm_back(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    In            dy,
    In            x,
    const float * w,
    const float * stats,
    In            add,
    Out           dx
) {
    norm_back<false>(s, rows, C, dy, x, w, stats, add, dx);
}

void norm_back_params(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    In            dy,
    In            x,
    const float * stats,
    float         beta,
    float *       dw,
    float *       db
) {
    with_types(x.bf16, dy.bf16, [&]<class X, class Y>(X *, Y *) {
        launch(
            norm_back_params_kernel<X, Y>, columns_grid(C), kColumnBlock, 0, s, rows, C,
            typed<Y>(dy), typed<X>(x), stats, beta, dw, db
        );
    });
}

void sum_rows(Stream s, int64_t rows, int64_t C, In x, int64_t ld, float beta, float * out) {
    with_type(x.bf16, [&]<class T>(T *) {
        launch(
            sum_rows_kernel<T>, columns_grid(C), kColumnBlock, 0, s, rows, C, typed<T>(x), ld, beta,
            out
        );
    });
}

}  // namespace gt::cuda
