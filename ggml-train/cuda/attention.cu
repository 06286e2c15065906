#include "ggml-train/cuda/attention.cuh"

namespace gt::cuda {

static dim3 grid(const Attention & a, int64_t heads, int rows_per_warp) {
    const int64_t rows = rows_per_warp * kAttnWarps;
    return dim3(
        static_cast<unsigned>((a.T + rows - 1) / rows), static_cast<unsigned>(heads),
        static_cast<unsigned>(a.B)
    );
}

void attention(Stream s, const Attention & a, const float * qkv, float * o, float * lse) {
    with_head(a, [&](auto nd) {
        constexpr int ND = decltype(nd)::value;
        launch(
            attention_kernel<ND>, grid(a, a.H, kRowsForward<ND>), kAttnThreads, 0, s, a,
            scale_of(a), qkv, o, lse
        );
    });
}

void attention_delta(Stream s, const Attention & a, In o, In d_o, float * delta) {
    with_type(o.bf16, [&]<class T>(T *) {
        launch(
            attention_delta_kernel<T>, blocks_for(a.B * a.T * a.H, kAttnWarps), kAttnThreads, 0, s,
            a, typed<T>(o), typed<T>(d_o), delta
        );
    });
}

void attention_back(
    Stream            s,
    const Attention & a,
    const float *     qkv,
    const float *     o,
    const float *     lse,
    const float *     d_o,
    float *           delta,
    float *           dqkv
) {
    attention_delta(s, a, o, d_o, delta);
    with_head(a, [&](auto nd) {
        constexpr int ND = decltype(nd)::value;
        launch(
            attention_dq_kernel<ND>, grid(a, a.H, kRowsBack<ND>), kAttnThreads, 0, s, a,
            scale_of(a), qkv, lse, delta, d_o, dqkv
        );
        launch(
            attention_dkv_kernel<ND>, grid(a, a.Hkv, kRowsBack<ND>), kAttnThreads, 0, s, a,
            scale_of(a), qkv, lse, delta, d_o, dqkv
        );
    });
}

}  // namespace gt::cuda
