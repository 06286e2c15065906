// ggml-train/cpu/gemm.cpp — matrix products: oneDNN's sgemm on each thread's block of the output.
//
// oneDNN generates code for the instructions of the CPU and reaches 80 to 92 % of the FMA peak on the
// shapes of training. Each of our threads calls the library for its own block of the output; the library
// is kept from starting threads itself.
#include "ggml-train/base/base.h"
#include "ggml-train/cpu/simd.h"

#include <dnnl.h>
#include <omp.h>

namespace gt::cpu {

// C = bias + residual (+ C if beta is 1): the product is then added on top of it.
static void prepare(const Gemm & g, Range rows, Range cols) {
    const int64_t n = cols.end - cols.begin;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
        float *       c        = g.C + r * g.ldc + cols.begin;
        const float * residual = g.residual ? g.residual + r * g.ldc + cols.begin : nullptr;
        const float * bias     = g.bias ? g.bias + cols.begin : nullptr;
        each(n, [&](int64_t i, auto k) {
            Vec v = g.beta == 0.0f ? Vec{} : load(c + i, k);
            v     = bias ? v + load(bias + i, k) : v;
            v     = residual ? v + load(residual + i, k) : v;
            store(c + i, v, k);
        });
    }
}

void gemm(Part part, const Gemm & g) {
    // The longer side is cut: equal pieces at multiples of the library's register tile.
    Range rows{0, g.M}, cols{0, g.N};
    if (g.M >= g.N) {
        rows = share(part, g.M, 8);
    } else {
        cols = share(part, g.N, 16);
    }
    const int64_t M = rows.end - rows.begin, N = cols.end - cols.begin;
    if (M == 0 || N == 0) {
        return;
    }

    // A residual that is in C already needs no extra pass.
    const bool in_place = g.residual == g.C && g.beta == 0.0f;
    const bool prepared = g.bias || g.residual;
    if (prepared && !(in_place && !g.bias)) {
        prepare(g, rows, cols);
    }

    // The setting belongs to the calling thread: one thread inside the library.
    thread_local const bool once = (omp_set_num_threads(1), true);
    (void) once;

    const float * A      = g.A + (g.ta ? rows.begin : rows.begin * g.lda);
    const float * B      = g.B + (g.tb ? cols.begin * g.ldb : cols.begin);
    float *       C      = g.C + rows.begin * g.ldc + cols.begin;
    const auto    status = dnnl_sgemm(
           g.ta ? 'T' : 'N', g.tb ? 'T' : 'N', M, N, g.K, 1.0f, A, g.lda, B, g.ldb,
        prepared ? 1.0f : g.beta, C, g.ldc
    );
    GT_CHECK(status == dnnl_success, "dnnl_sgemm refused its arguments");
}

}  // namespace gt::cpu
