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

void layer_norm(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    float         eps,
    const float * x,
    const float * w,
    const float * b,
    float *       y,
    float *       stats
) {
    launch(norm_kernel<true>, rows_grid(rows), kThreads, 0, s, rows, C, eps, x, w, b, y, stats);
}

void rms_norm(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    float         eps,
    const float * x,
    const float * w,
    float *       y,
    float *       stats
) {
    launch(
        norm_kernel<false>, rows_grid(rows), kThreads, 0, s, rows, C, eps, x, w, nullptr, y, stats
    );
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

void sum_rows(
    Stream s, int64_t rows, int64_t C, const float * x, int64_t ld, float beta, float * out
) {
    launch(sum_rows_kernel, columns_grid(C), kColumnBlock, 0, s, rows, C, x, ld, beta, out);
}

}  // namespace gt::cuda
