#include "ggml-train/cuda/attention-mma.cuh"

namespace gt::cuda {

static dim3 tiles_of(const Attention & a, int64_t heads) {
    return dim3(
        static_cast<unsigned>((a.T + kMmaRows - 1) / kMmaRows), static_cast<unsigned>(heads),
        static_cast<unsigned>(a.B)
    );
}

// Rows are read four floats at a time.
static bool suits(const Attention & a) {
    return a.D % 4 == 0 && has_tensor_cores();
}

void attention_bf16(Stream s, const Attention & a, const float * qkv, float * o, float * lse) {
    if (!suits(a)) {
        return attention(s, a, qkv, o, lse);
    }
    with_head(a, [&](auto nd) {
        constexpr int ND = decltype(nd)::value;
        launch(
            attention_bf16_kernel<ND>, tiles_of(a, a.H), kMmaThreads,
            tile_bytes<ND>(kMmaRows + 2 * kMmaColumns<ND>), s, a, scale_of(a), qkv, o, lse
        );
    });
}

void attention_bf16_back(
    Stream            s,
    const Attention & a,
    const float *     qkv,
    const float *     o,
    const float *     lse,
    const float *     d_o,
    float *           delta,
    Out               dqkv
) {
    if (!suits(a)) {
        GT_CHECK(!dqkv.bf16, "results in bf16 come from tensor cores");
        return attention_back(s, a, qkv, o, lse, d_o, delta, static_cast<float *>(dqkv.to));
    }
    attention_delta(s, a, o, d_o, delta);
    with_head(a, [&](auto nd) {
        constexpr int    ND    = decltype(nd)::value;
        constexpr size_t bytes = tile_bytes<ND>(2 * kMmaRows + 2 * kMmaColumns<ND>);
        launch(
            attention_bf16_dq_kernel<ND>, tiles_of(a, a.H), kMmaThreads, bytes, s, a, scale_of(a),
            qkv, lse, delta, d_o, dqkv
        );
        launch(
            attention_bf16_dkv_kernel<ND>, tiles_of(a, a.Hkv), kMmaThreads, bytes, s, a,
            scale_of(a), qkv, lse, delta, d_o, dqkv
        );
    });
}

}  // namespace gt::cuda
