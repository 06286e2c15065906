// ggml-train/cuda/attention.cuh — exact attention by tiles, as FlashAttention (arXiv 2205.14135).
//
// A warp keeps R rows (queries, or keys in the gradient) and processes tiles of 32 columns in shared
// memory, a lane per column; then a lane per element of the head sums the products. The gradient has one
// kernel for dq and one for dk and dv, each of which writes only its own output: no atomics, the same
// bits every time. F32 throughout.
#pragma once

#include "ggml-train/cuda/bf16.cuh"
#include "ggml-train/cuda/heads.cuh"

namespace gt::cuda {

constexpr int kTile        = 32;  // columns processed at a time
constexpr int kAttnWarps   = 4;
constexpr int kAttnThreads = kAttnWarps * 32;

// Rows per warp: as many as fit in 48 KB of shared memory. ND: head size in units of 32.
template <int ND>
constexpr int kRowsForward = 4;
template <int ND>
constexpr int kRowsBack = ND <= 2 ? 4 : 2;

// Whether token t of sequence b sees a key.
__device__ inline bool sees(const Attention & a, int64_t b, int64_t t, int64_t key) {
    const bool inside = key < a.T && t < a.T;
    const bool before = a.positions && inside && key < t - a.positions[b * a.T + t];
    return inside && !before && (!a.causal || key <= t);
}

// Copies rows [first, first + n) of a matrix with `ld` floats from row to row to shared memory with
// `to_ld`, times scale; zeros beyond T rows and beyond D columns, up to DP.
__device__ inline void load_rows(
    const float * from,
    int64_t       ld,
    int64_t       first,
    int           n,
    int64_t       T,
    int64_t       D,
    int           DP,
    float         scale,
    float *       to,
    int           to_ld
) {
    for (int e = threadIdx.x; e < n * DP; e += kAttnThreads) {
        const int r = e / DP, d = e % DP;
        to[r * to_ld + d] = first + r < T && d < D ? from[(first + r) * ld + d] * scale : 0.0f;
    }
}

template <int ND>
__global__ void __launch_bounds__(kAttnThreads)
    attention_kernel(Attention a, float scale, const float * qkv, float * o, float * lse) {
    constexpr int R = kRowsForward<ND>, kRows = R * kAttnWarps, DP = ND * 32, LD = DP + 1;
    GT_SHARED(float, q, kRows * DP);
    GT_SHARED(float, k, kTile * LD);
    GT_SHARED(float, v, kTile * LD);
    const Heads   at(a);
    const int     lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * R;
    const int64_t h = blockIdx.y, b = blockIdx.z, hk = h / (a.H / a.Hkv);
    const int64_t first = int64_t(blockIdx.x) * kRows;
    const float * batch = qkv + b * a.T * at.ld();
    load_rows(batch + at.q(h), at.ld(), first, kRows, a.T, a.D, DP, scale, q, DP);

    float acc[R][ND] = {}, top[R], total[R];
    for (int r = 0; r < R; ++r) {
        top[r]   = kMasked;
        total[r] = 0.0f;
    }
    const int64_t end = a.causal && first + kRows < a.T ? first + kRows : a.T;
    for (int64_t k0 = 0; k0 < end; k0 += kTile) {
        __syncthreads();
        load_rows(batch + at.k(hk), at.ld(), k0, kTile, a.T, a.D, DP, 1.0f, k, LD);
        load_rows(batch + at.v(hk), at.ld(), k0, kTile, a.T, a.D, DP, 1.0f, v, LD);
        __syncthreads();
        float p[R] = {};
        for (int d = 0; d < DP; ++d) {
            const float kd = k[lane * LD + d];
            for (int r = 0; r < R; ++r) {
                p[r] += q[(row0 + r) * DP + d] * kd;
            }
        }
        for (int r = 0; r < R; ++r) {
            const bool  seen = sees(a, b, first + row0 + r, k0 + lane);
            const float s    = seen ? p[r] : kMasked;
            const float high = fmaxf(top[r], warp_max(s));
            const float less = expf(top[r] - high);
            p[r]             = seen ? expf(s - high) : 0.0f;
            total[r]         = total[r] * less + warp_sum(p[r]);
            top[r]           = high;
            for (int n = 0; n < ND; ++n) {
                acc[r][n] *= less;
            }
        }
        for (int j = 0; j < kTile; ++j) {
            for (int r = 0; r < R; ++r) {
                const float pj = __shfl_sync(kAll, p[r], j);
                for (int n = 0; n < ND; ++n) {
                    acc[r][n] += pj * v[j * LD + lane + 32 * n];
                }
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        const int64_t t = first + row0 + r;
        if (t < a.T) {
            for (int n = 0; n < ND; ++n) {
                const int64_t d = lane + 32 * n;
                if (d < a.D) {
                    o[((b * a.T + t) * a.H + h) * a.D + d] = acc[r][n] / total[r];
                }
            }
            if (lane == 0) {
                lse[(b * a.H + h) * a.T + t] = top[r] + logf(total[r]);
            }
        }
    }
}

// delta [B x H x T] = sum over a head of o * d_o; a warp per head of a token.
template <class T>
__global__ void __launch_bounds__(kAttnThreads)
    attention_delta_kernel(Attention a, const T * o, const T * d_o, float * delta) {
    const int64_t lane = threadIdx.x % 32;
    for (int64_t i = int64_t(blockIdx.x) * kAttnWarps + threadIdx.x / 32; i < a.B * a.T * a.H;
         i += int64_t(gridDim.x) * kAttnWarps) {
        float sum = 0.0f;
        for (int64_t d = lane; d < a.D; d += 32) {
            sum += value_of(o[i * a.D + d]) * value_of(d_o[i * a.D + d]);
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            const int64_t h = i % a.H, t = i / a.H % a.T, b = i / a.H / a.T;
            delta[(b * a.H + h) * a.T + t] = sum;
        }
    }
}

// dq: rows are queries, columns keys.
template <int ND>
__global__ void __launch_bounds__(kAttnThreads) attention_dq_kernel(
    Attention     a,
    float         scale,
    const float * qkv,
    const float * lse,
    const float * delta,
    const float * d_o,
    float *       dqkv
) {
    constexpr int R = kRowsBack<ND>, kRows = R * kAttnWarps, DP = ND * 32, LD = DP + 1;
    GT_SHARED(float, q, kRows * DP);
    GT_SHARED(float, g, kRows * DP);  // d_o
    GT_SHARED(float, k, kTile * LD);
    GT_SHARED(float, v, kTile * LD);
    const Heads   at(a);
    const int     lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * R;
    const int64_t h = blockIdx.y, b = blockIdx.z, hk = h / (a.H / a.Hkv);
    const int64_t first = int64_t(blockIdx.x) * kRows;
    const float * batch = qkv + b * a.T * at.ld();
    load_rows(batch + at.q(h), at.ld(), first, kRows, a.T, a.D, DP, scale, q, DP);
    load_rows(d_o + (b * a.T * a.H + h) * a.D, a.H * a.D, first, kRows, a.T, a.D, DP, 1.0f, g, DP);

    float acc[R][ND] = {}, row_lse[R], row_delta[R];
    for (int r = 0; r < R; ++r) {
        const int64_t t = first + row0 + r;
        row_lse[r]      = t < a.T ? lse[(b * a.H + h) * a.T + t] : 0.0f;
        row_delta[r]    = t < a.T ? delta[(b * a.H + h) * a.T + t] : 0.0f;
    }
    const int64_t end = a.causal && first + kRows < a.T ? first + kRows : a.T;
    for (int64_t k0 = 0; k0 < end; k0 += kTile) {
        __syncthreads();
        load_rows(batch + at.k(hk), at.ld(), k0, kTile, a.T, a.D, DP, 1.0f, k, LD);
        load_rows(batch + at.v(hk), at.ld(), k0, kTile, a.T, a.D, DP, 1.0f, v, LD);
        __syncthreads();
        // scores and dP of this lane's key
        float s[R] = {}, dp[R] = {};
        for (int d = 0; d < DP; ++d) {
            const float kd = k[lane * LD + d], vd = v[lane * LD + d];
            for (int r = 0; r < R; ++r) {
                s[r] += q[(row0 + r) * DP + d] * kd;
                dp[r] += g[(row0 + r) * DP + d] * vd;
            }
        }
        // dS = P * (dP - delta)
        for (int r = 0; r < R; ++r) {
            const bool seen = sees(a, b, first + row0 + r, k0 + lane);
            s[r] = seen ? expf(s[r] - row_lse[r]) * (dp[r] - row_delta[r]) * scale : 0.0f;
        }
        // dQ += dS K
        for (int j = 0; j < kTile; ++j) {
            for (int r = 0; r < R; ++r) {
                const float ds = __shfl_sync(kAll, s[r], j);
                for (int n = 0; n < ND; ++n) {
                    acc[r][n] += ds * k[j * LD + lane + 32 * n];
                }
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        const int64_t t = first + row0 + r;
        for (int n = 0; n < ND; ++n) {
            const int64_t d = lane + 32 * n;
            if (t < a.T && d < a.D) {
                dqkv[(b * a.T + t) * at.ld() + at.q(h) + d] = acc[r][n];
            }
        }
    }
}

// dk and dv: rows are keys, columns queries, of all query heads that use the key head.
template <int ND>
__global__ void __launch_bounds__(kAttnThreads) attention_dkv_kernel(
    Attention     a,
    float         scale,
    const float * qkv,
    const float * lse,
    const float * delta,
    const float * d_o,
    float *       dqkv
) {
    constexpr int R = kRowsBack<ND>, kRows = R * kAttnWarps, DP = ND * 32, LD = DP + 1;
    GT_SHARED(float, k, kRows * DP);
    GT_SHARED(float, v, kRows * DP);
    GT_SHARED(float, q, kTile * LD);
    GT_SHARED(float, g, kTile * LD);  // d_o
    const Heads   at(a);
    const int     lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * R;
    const int64_t hk = blockIdx.y, b = blockIdx.z, group = a.H / a.Hkv;
    const int64_t first = int64_t(blockIdx.x) * kRows;
    const float * batch = qkv + b * a.T * at.ld();
    load_rows(batch + at.k(hk), at.ld(), first, kRows, a.T, a.D, DP, scale, k, DP);
    load_rows(batch + at.v(hk), at.ld(), first, kRows, a.T, a.D, DP, 1.0f, v, DP);

    float         dk[R][ND] = {}, dv[R][ND] = {};
    const int64_t begin = a.causal ? first / kTile * kTile : 0;
    for (int64_t h = hk * group; h < (hk + 1) * group; ++h) {
        for (int64_t q0 = begin; q0 < a.T; q0 += kTile) {
            __syncthreads();
            load_rows(batch + at.q(h), at.ld(), q0, kTile, a.T, a.D, DP, 1.0f, q, LD);
            load_rows(
                d_o + (b * a.T * a.H + h) * a.D, a.H * a.D, q0, kTile, a.T, a.D, DP, 1.0f, g, LD
            );
            __syncthreads();
            // scores and dP of this lane's query
            float p[R] = {}, ds[R] = {};
            for (int d = 0; d < DP; ++d) {
                const float qd = q[lane * LD + d], gd = g[lane * LD + d];
                for (int r = 0; r < R; ++r) {
                    p[r] += k[(row0 + r) * DP + d] * qd;
                    ds[r] += v[(row0 + r) * DP + d] * gd;
                }
            }
            // P, and dS = P * (dP - delta)
            const int64_t t         = q0 + lane;
            const float   col_lse   = t < a.T ? lse[(b * a.H + h) * a.T + t] : 0.0f;
            const float   col_delta = t < a.T ? delta[(b * a.H + h) * a.T + t] : 0.0f;
            for (int r = 0; r < R; ++r) {
                const bool seen = sees(a, b, t, first + row0 + r);
                p[r]            = seen ? expf(p[r] - col_lse) : 0.0f;
                ds[r]           = seen ? p[r] * (ds[r] - col_delta) * scale : 0.0f;
            }
            // dV += P' dO, dK += dS' Q
            for (int j = 0; j < kTile; ++j) {
                for (int r = 0; r < R; ++r) {
                    const float pj = __shfl_sync(kAll, p[r], j), sj = __shfl_sync(kAll, ds[r], j);
                    for (int n = 0; n < ND; ++n) {
                        dv[r][n] += pj * g[j * LD + lane + 32 * n];
                        dk[r][n] += sj * q[j * LD + lane + 32 * n];
                    }
                }
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        const int64_t t = first + row0 + r;
        for (int n = 0; n < ND; ++n) {
            const int64_t d = lane + 32 * n;
            if (t < a.T && d < a.D) {
                dqkv[(b * a.T + t) * at.ld() + at.k(hk) + d] = dk[r][n];
                dqkv[(b * a.T + t) * at.ld() + at.v(hk) + d] = dv[r][n];
            }
        }
    }
}

}  // namespace gt::cuda
