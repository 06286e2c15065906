#include "ggml-train/graph/frozen-linear.h"

#include <algorithm>
#include <memory>

namespace gt {

namespace {

// Rows of a window of `cols` columns: half a megabyte.
int64_t window_rows(int64_t cols) {
    return std::clamp<int64_t>((int64_t{1} << 17) / cols, 16, 256);
}

}  // namespace

void read_row(const ggml_tensor * w, int64_t row, int64_t begin, int64_t n, float * out) {
    const char * from =
        static_cast<const char *>(w->data) + row * w->nb[1] + ggml_row_size(w->type, begin);
    if (w->type == GGML_TYPE_F32) {
        std::copy_n(reinterpret_cast<const float *>(from), n, out);
    } else {
        ggml_get_type_traits(w->type)->to_float(from, out, n);
    }
}

void frozen_linear(cpu::Part part, const FrozenProduct & p) {
    const int64_t    K = p.w->ne[0], N = p.w->ne[1];
    const cpu::Range mine = cpu::share(part, N, 16);
    const int64_t    most = window_rows(K);
    const auto window     = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(most * K));
    for (int64_t begin = mine.begin; begin < mine.end; begin += most) {
        const int64_t n = std::min(most, mine.end - begin);
        for (int64_t r = 0; r < n; ++r) {
            read_row(p.w, begin + r, 0, K, window.get() + r * K);
        }
        cpu::gemm(
            {}, {.tb       = true,
                 .M        = p.M,
                 .N        = n,
                 .K        = K,
                 .A        = p.x,
                 .lda      = p.ldx,
                 .B        = window.get(),
                 .ldb      = K,
                 .C        = p.y + begin,
                 .ldc      = p.ldy,
                 .bias     = p.bias ? p.bias + begin : nullptr,
                 .residual = p.residual ? p.residual + begin : nullptr}
        );
    }
}

void frozen_linear_back(cpu::Part part, const FrozenBack & b) {
    // columns are shared in whole blocks of all types; if there are too few, tokens as well
    const int64_t K    = b.weights[0]->ne[0];
    int64_t       unit = 1;
    for (int w = 0; w < b.n_weights; ++w) {
        unit = std::max(unit, ggml_blck_size(b.weights[w]->type));
    }
    const int n_across = static_cast<int>(std::min<int64_t>(part.n, (K + unit - 1) / unit));
    const int n_down   = part.n / n_across;
    if (part.i >= n_across * n_down) {
        return;
    }
    const cpu::Range cols   = cpu::share({part.i % n_across, n_across}, K, unit);
    const cpu::Range tokens = cpu::share({part.i / n_across, n_down}, b.M, 8);
    const int64_t    width  = cols.end - cols.begin;
    const int64_t    most   = window_rows(width);
    const auto window = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(most * width));
    const float * dy  = b.dy + tokens.begin * b.ldy;
    bool          first = true;
    for (int w = 0; w < b.n_weights; ++w) {
        const ggml_tensor * weight = b.weights[w];
        for (int64_t begin = 0; begin < weight->ne[1]; begin += most) {
            const int64_t n = std::min(most, weight->ne[1] - begin);
            for (int64_t r = 0; r < n; ++r) {
                read_row(weight, begin + r, cols.begin, width, window.get() + r * width);
            }
            const int64_t at = tokens.begin * K + cols.begin;
            cpu::gemm(
                {}, {.M        = tokens.end - tokens.begin,
                     .N        = width,
                     .K        = n,
                     .A        = dy + begin,
                     .lda      = b.ldy,
                     .B        = window.get(),
                     .ldb      = width,
                     .C        = b.dx + at,
                     .ldc      = K,
                     .beta     = first ? 0.0f : 1.0f,
                     .residual = first && b.add ? b.add + at : nullptr}
            );
            first = false;
        }
        dy += weight->ne[1];
    }
}

}  // namespace gt
