// ggml-train/cuda/muon.cu — compiled with -fmad=false, as demo.cu: fused operations are explicit.
#include "ggml-train/cuda/muon.cuh"

namespace gt::cuda {

void nesterov(
    Stream s, int64_t n, float scale, float momentum, const float * u, float * m, float * x
) {
    launch(nesterov_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, scale, momentum, u, m, x);
}

void nesterov_sign(
    Stream s, int64_t n, const SignStep & step, const float * u, float * m, float * p
) {
    launch(nesterov_sign_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, step, u, m, p);
}

static void multiply(Stream s, int64_t count, void (*kernel)(Product), const Product & p) {
    const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kSide - 1) / kSide); };
    const dim3 grid(tiles(p.cols), tiles(p.rows), static_cast<unsigned>(count));
    launch(kernel, grid, kProductThreads, 0, s, p);
}

float * orthogonalise(Stream s, const Matrices & m, int n_steps, float * x, void * room) {
    const int64_t n = m.size(), n_parts = m.n_parts(), rows = m.rows, cols = m.cols;
    const bool    tall = rows > cols;
    const int64_t side = tall ? cols : rows, length = tall ? rows : cols;
    const auto    count = static_cast<unsigned>(m.count);

    auto *  parts   = static_cast<double *>(room);
    float * inverse = reinterpret_cast<float *>(parts + m.count * n_parts);
    float * next    = reinterpret_cast<float *>(parts + orthogonalise_doubles(m));
    float * gram    = next + m.count * n;
    float * mixed   = gram + m.count * side * side;

    // x /= its norm
    sums_of_squares(
        s, {.n = m.count, .n_pieces = m.count * n_parts, .only = {.data = x, .n = n}}, parts
    );
    launch(inverse_norm_kernel, count, 1, 0, s, n_parts, parts, inverse);
    launch(normalise_kernel, dim3(blocks_for(n, kThreads).x, count), kThreads, 0, s, n, inverse, x);
    for (int step = 0; step < n_steps; ++step) {
        // gram = x x', along the longer side; it is symmetric and may be read either way
        multiply(
            s, m.count, tall ? product_kernel<true, true> : product_kernel<false, false>,
            {.rows      = side,
             .cols      = side,
             .depth     = length,
             .a         = x,
             .b         = x,
             .out       = gram,
             .symmetric = true}
        );
        // mixed = -4.7750 gram + 2.0315 gram gram
        multiply(
            s, m.count, product_kernel<true, true>,
            {.rows      = side,
             .cols      = side,
             .depth     = side,
             .a         = gram,
             .b         = gram,
             .given     = gram,
             .keep      = -4.7750f,
             .mix       = 2.0315f,
             .out       = mixed,
             .symmetric = true}
        );
        // next = 3.4445 x + mixed x
        multiply(
            s, m.count, tall ? product_kernel<false, true> : product_kernel<true, true>,
            {.rows  = rows,
             .cols  = cols,
             .depth = side,
             .a     = tall ? x : mixed,
             .b     = tall ? mixed : x,
             .given = x,
             .keep  = 3.4445f,
             .out   = next}
        );
        float * const t = x;
        x               = next;
        next            = t;
    }
    return x;
}

}  // namespace gt::cuda
