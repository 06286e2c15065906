#include "ggml-train/cuda/attention.cuh"

#include <cmath>
#include <utility>

namespace gt::cuda {

static dim3 grid(const Attention & a, int64_t heads, int rows_per_warp) {
    const int64_t rows = rows_per_warp * kAttnWarps;
    return dim3(
        static_cast<unsigned>((a.T + rows - 1) / rows), static_cast<unsigned>(heads),
        static_cast<unsigned>(a.B)
    );
}

static float scale_of(const Attention & a) {
    return 1.0f / std::sqrt(static_cast<float>(a.D));
}

// Calls fn with the head size in units of 32, as a constant.
template <class F>
static void with_head(const Attention & a, const F & fn) {
    if (a.D < 1 || a.D > kMaxHead) {
        throw Error(format(
            "CUDA: attention: heads of %lld, at most %lld are supported",
            static_cast<long long>(a.D), static_cast<long long>(kMaxHead)
        ));
    }
    switch ((a.D + 31) / 32) {
        case 1:
            return fn(std::integral_constant<int, 1>());
        case 2:
            return fn(std::integral_constant<int, 2>());
        case 3:
            return fn(std::integral_constant<int, 3>());
        default:
            return fn(std::integral_constant<int, 4>());
    }
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
    launch(
        attention_delta_kernel, blocks_for(a.B * a.T * a.H, kAttnWarps), kAttnThreads, 0, s, a, o,
        d_o, delta
    );
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
