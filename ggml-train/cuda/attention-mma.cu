#include "ggml-train/cuda/attention-mma.cuh"

namespace gt::cuda {

static dim3 tiles_of(const Attention & a, int64_t heads) {
    return dim3(
        static_cast<unsigned>((a.T + kMmaRows - 1) / kMmaRows), static_cast<unsigned>(heads),
        static_cast<unsigned>(a.B)
    );
}

static void check_heads(const Attention & a) {
    GT_CHECK(a.D % kHeadStep == 0, "rows are read eight bf16 at a time");
    GT_CHECK(has_tensor_cores(), "attention of bf16 needs tensor cores");
}

void attention_bf16(
    Stream s, const Attention & a, const uint16_t * qkv, uint16_t * o, float * lse
) {
    check_heads(a);
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
    const uint16_t *  qkv,
    const uint16_t *  o,
    const float *     lse,
    const uint16_t *  d_o,
    float *           delta,
    uint16_t *        dqkv
) {
    check_heads(a);
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
