// ggml-train/cuda/demo.cu — compiled with -fmad=false: hosts must agree on these bits.
#include "ggml-train/cuda/demo.cuh"
#include "ggml-train/cuda/rules.cuh"

namespace gt::cuda {

static dim3 chunk_blocks(const DemoChunks & c) {
    const int64_t n = static_cast<int64_t>(c.rows) * c.cols;
    if (n > kMaxChunk) {
        throw Error(format(
            "CUDA: chunks of %lld elements, at most %d are supported; choose a smaller --chunk",
            static_cast<long long>(n), kMaxChunk
        ));
    }
    return blocks_for(c.n_chunks, 1);
}

void demo_extract(
    Stream s, const DemoChunks & c, const DemoFold & fold, float * momentum, uint8_t * message
) {
    const dim3   grid = chunk_blocks(c);
    const size_t n    = static_cast<size_t>(c.rows) * static_cast<size_t>(c.cols),
                 k    = static_cast<size_t>(c.k);
    const DemoFold scaled{fold.grad, fold.decay, fold.alpha * c.factor};
    launch(
        demo_extract_kernel, grid, kThreads, (2 * n + kLine + k) * sizeof(float) + (k + 1) / 2 * 4,
        s, c, scaled, momentum, message
    );
}

void demo_give_back(Stream s, const DemoChunks & c, const uint8_t * message, float * momentum) {
    launch(
        demo_give_back_kernel, chunk_blocks(c), kThreads,
        static_cast<size_t>(c.k) * sizeof(uint16_t), s, c, message, momentum
    );
}

void demo_merge(
    Stream s, const DemoChunks & c, const DemoPiece * pieces, int n_pieces, float * update
) {
    const dim3   grid     = chunk_blocks(c);
    const size_t n        = static_cast<size_t>(c.rows) * static_cast<size_t>(c.cols),
                 k        = static_cast<size_t>(c.k);
    const size_t capacity = k > kEntries ? k : kEntries;
    const size_t sums =
        2 * kWindow * sizeof(double) + capacity * (sizeof(float) + sizeof(uint16_t));
    const size_t second = n * sizeof(float) > sums ? n * sizeof(float) : sums;
    launch(
        demo_merge_kernel, grid, kThreads, (n + 1) / 2 * 8 + second, s, c, pieces, n_pieces, update
    );
}

void fold(Stream s, int64_t n, float decay, float alpha, const float * g, float * m) {
    launch(fold_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, decay, alpha, g, m);
}

void take_sign(Stream s, int64_t n, float * u) {
    launch(take_sign_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, u);
}

void sgd(Stream s, int64_t n, float keep, float step, const float * u, float * p) {
    launch(sgd_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, keep, step, u, p);
}

void adamw(
    Stream           s,
    int64_t          n,
    const AdamStep & step,
    float            scale,
    const float *    u,
    float *          p,
    float *          m,
    float *          v
) {
    launch(adamw_kernel, blocks_for(n, kThreads), kThreads, 0, s, n, step, scale, u, p, m, v);
}

void adamw_q8(
    Stream           s,
    int64_t          rows,
    int64_t          cols,
    const AdamStep & step,
    float            scale,
    const float *    u,
    float *          p,
    float *          m,
    float *          v
) {
    const MomentRows r{rows, cols, moment_blocks(cols), moment_floats(cols)};
    launch(
        adamw_q8_kernel, blocks_for(r.n * r.n_blocks, 1), kThreads, 0, s, r, step, scale, u, p, m, v
    );
}

void sums_of_squares(Stream s, const Spans & arrays, double * parts) {
    launch(
        sums_of_squares_kernel, blocks_for(arrays.n_pieces, kThreads / kSums), kThreads, 0, s,
        arrays, parts
    );
}

void digests(Stream s, const Spans & arrays, uint64_t * out) {
    // a piece's digest is one chain: threads far apart, so that all multiprocessors work
    launch(digests_kernel, blocks_for(arrays.n_pieces, kWarp), kWarp, 0, s, arrays, out);
}

}  // namespace gt::cuda
