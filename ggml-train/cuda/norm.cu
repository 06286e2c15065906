#include "ggml-train/cuda/kernels.h"
#include "ggml-train/cuda/norm.cuh"

#include <type_traits>

namespace gt::cuda {

static dim3 rows_grid(int64_t rows) {
    return blocks_for(rows, kThreads / kWarp);
}
static dim3 columns_grid(int64_t C) {
    return dim3(static_cast<unsigned>((C + kColumns - 1) / kColumns));
}
static const dim3 kColumnBlock(kColumns, kRowGroups);

void layer_norm(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    float         eps,
    const float * x,
    const float * w,
    const float * b,
    Out           y,
    float *       stats
) {
    with_type(y, [&](auto * to) {
        using T = std::remove_pointer_t<decltype(to)>;
        launch(
            norm_kernel<true, T>, rows_grid(rows), kThreads, 0, s, rows, C, eps, x, w, b, to, stats
        );
    });
}

void rms_norm(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    float         eps,
    const float * x,
    const float * w,
    Out           y,
    float *       stats
) {
    with_type(y, [&](auto * to) {
        using T = std::remove_pointer_t<decltype(to)>;
        launch(
            norm_kernel<false, T>, rows_grid(rows), kThreads, 0, s, rows, C, eps, x, w, nullptr, to,
            stats
        );
    });
}

void layer_norm_back(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * w,
    const float * stats,
    const float * add,
    float *       dx
) {
    launch(
        norm_back_kernel<true>, rows_grid(rows), kThreads, 0, s, rows, C, dy, x, w, stats, add, dx
    );
}

void rms_norm_back(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * w,
    const float * stats,
    const float * add,
    float *       dx
) {
    launch(
        norm_back_kernel<false>, rows_grid(rows), kThreads, 0, s, rows, C, dy, x, w, stats, add, dx
    );
}

void norm_back_params(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * stats,
    float         beta,
    float *       dw,
    float *       db
) {
    launch(
        norm_back_params_kernel, columns_grid(C), kColumnBlock, 0, s, rows, C, dy, x, stats, beta,
        dw, db
    );
}

void sum_rows(Stream s, int64_t rows, int64_t C, In x, int64_t ld, float beta, float * out) {
    const auto run = [&](auto * from) {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
        launch(
            sum_rows_kernel<T>, columns_grid(C), kColumnBlock, 0, s, rows, C, from, ld, beta, out
        );
    };
    x.bf16 ? run(static_cast<const uint16_t *>(x.from)) : run(static_cast<const float *>(x.from));
}

}  // namespace gt::cuda
