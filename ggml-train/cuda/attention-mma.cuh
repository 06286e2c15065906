// ggml-train/cuda/attention-mma.cuh — attention on tensor cores: products of bf16, everything else in F32.
//
// q, k, v and d_o are bf16; weights and their gradients are rounded where they are a factor of the next product,
// results where they are written. A warp keeps 16 rows (queries; keys in the gradient of keys and values) and
// passes over tiles of columns in shared memory. As in attention.cuh there are two kernels for the
// gradient, each of which writes only its own output: one kernel for all would need atomics, or a dq for
// every tile of keys, and multiplies 5 times where these two multiply 7 times.
#pragma once

#include "ggml-train/cuda/heads.cuh"
#include "ggml-train/cuda/mma.cuh"

namespace gt::cuda {

constexpr int   kMmaRows = kMmaThreads / 32 * 16;  // of a block
constexpr float kLog2e   = 1.44269504088896340736f;
constexpr float kLn2     = 0.69314718055994530942f;

// Columns of a tile: as many as registers hold.
template <int ND>
constexpr int kMmaColumns = ND <= 2 ? 64 : 32;

// The keys [begin, end) that a query sees; none beyond T.
struct Seen {
    int begin, end;

    __device__ bool has(int key) const { return begin <= key && key < end; }
};

__device__ inline Seen seen_by(const Attention & a, int64_t b, int t) {
    if (t >= a.T) {
        return {0, 0};
    }
    return {a.positions ? t - a.positions[b * a.T + t] : 0, a.causal ? t + 1 : int(a.T)};
}

// c [16 x N] = rows of `tile` from row0 * columns transposed, over DP elements.
template <int DP, int N>
__device__ inline void
scores(float (&c)[N / 8][4], const unsigned * tile, int row0, const unsigned * columns) {
    for (auto & part : c) {
        part[0] = part[1] = part[2] = part[3] = 0.0f;
    }
    for (int d = 0; d < DP; d += 16) {
        unsigned a[4];
        load_a<DP>(a, tile, row0, d);
        for (int j = 0; j < N; j += 16) {
            unsigned b[4];
            load_b<DP>(b, columns, d, j);
            multiply_add(c[j / 8], a, b[0], b[1]);
            multiply_add(c[j / 8 + 1], a, b[2], b[3]);
        }
    }
}

// c [16 x DP] += p [16 x N], rounded, * columns [N x DP].
template <int DP, int N>
__device__ inline void
add_product(float (&c)[DP / 8][4], const float (&p)[N / 8][4], const unsigned * columns) {
    for (int j = 0; j < N; j += 16) {
        const float(&low)[4]  = p[j / 8];
        const float(&high)[4] = p[j / 8 + 1];
        const unsigned a[4]   = {
              pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]), pack_bf16(high[0], high[1]),
              pack_bf16(high[2], high[3])};
        for (int d = 0; d < DP; d += 16) {
            unsigned b[4];
            load_b_transposed<DP>(b, columns, j, d);
            multiply_add(c[d / 8], a, b[0], b[1]);
            multiply_add(c[d / 8 + 1], a, b[2], b[3]);
        }
    }
}

// Row `row` of this lane's two of c (0, 1), times `by`: D values.
template <int DP>
__device__ inline void
store_row(const float (&c)[DP / 8][4], int row, float by, int D, uint16_t * to) {
    for (int n = 0; n < DP / 8; ++n) {
        const int d = n * 8 + threadIdx.x % 4 * 2;
        if (d < D) {
            *reinterpret_cast<unsigned *>(to + d) =
                pack_bf16(c[n][2 * row] * by, c[n][2 * row + 1] * by);
        }
    }
}

// Over the four lanes of a row.
__device__ inline float row_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(kAll, v, 1));
    return fmaxf(v, __shfl_xor_sync(kAll, v, 2));
}
__device__ inline float row_sum(float v) {
    v += __shfl_xor_sync(kAll, v, 1);
    return v + __shfl_xor_sync(kAll, v, 2);
}

// Bytes of tiles of this many rows in all.
template <int ND>
constexpr size_t tile_bytes(int rows) {
    return sizeof(unsigned) * kRowWords<ND * 32> * rows;
}

template <int ND>
__global__ void __launch_bounds__(kMmaThreads
) attention_bf16_kernel(Attention a, float scale, const uint16_t * qkv, uint16_t * o, float * lse) {
    constexpr int DP = ND * 32, N = kMmaColumns<ND>;
    GT_DYNAMIC_SHARED(unsigned, q);
    unsigned *       k = q + kMmaRows * kRowWords<DP>, *v = k + N * kRowWords<DP>;
    const Heads      at(a);
    const int        T = int(a.T), D = int(a.D), row0 = threadIdx.x / 32 * 16;
    const int        lane = threadIdx.x % 32, first = int(blockIdx.x) * kMmaRows;
    const int64_t    h = blockIdx.y, b = blockIdx.z, hk = h / (a.H / a.Hkv);
    const uint16_t * batch = qkv + b * a.T * at.ld();
    load_tile<DP, kMmaRows>(batch + at.q(h), at.ld(), first, T, D, q);

    float acc[DP / 8][4] = {}, top[2] = {kMasked, kMasked}, total[2] = {};
    int   t[2];
    Seen  seen[2];
    for (int r = 0; r < 2; ++r) {
        t[r]    = first + row0 + lane / 4 + 8 * r;
        seen[r] = seen_by(a, b, t[r]);
    }
    const int end = a.causal && first + kMmaRows < T ? first + kMmaRows : T;
    for (int k0 = seen_by(a, b, first).begin / N * N; k0 < end; k0 += N) {
        __syncthreads();
        load_tile<DP, N>(batch + at.k(hk), at.ld(), k0, T, D, k);
        load_tile<DP, N>(batch + at.v(hk), at.ld(), k0, T, D, v);
        __syncthreads();
        float p[N / 8][4];
        scores<DP, N>(p, q, row0, k);
        // the running softmax, to base 2. A row that has seen no key yet has weights of 1, which the
        // first key takes away: `less` is 0 then
        for (int r = 0; r < 2; ++r) {
            float high = top[r];
            for (int j = 0; j < N / 8; ++j) {
                for (int i = 2 * r; i < 2 * r + 2; ++i) {
                    const int key = k0 + j * 8 + lane % 4 * 2 + i % 2;
                    p[j][i]       = seen[r].has(key) ? p[j][i] * (scale * kLog2e) : kMasked;
                    high          = fmaxf(high, p[j][i]);
                }
            }
            high             = row_max(high);
            const float less = exp2f(top[r] - high);
            top[r]           = high;
            total[r] *= less;
            for (int j = 0; j < N / 8; ++j) {
                for (int i = 2 * r; i < 2 * r + 2; ++i) {
                    p[j][i] = exp2f(p[j][i] - high);
                    total[r] += p[j][i];
                }
            }
            for (int n = 0; n < DP / 8; ++n) {
                acc[n][2 * r] *= less;
                acc[n][2 * r + 1] *= less;
            }
        }
        add_product<DP, N>(acc, p, v);
    }
    for (int r = 0; r < 2; ++r) {
        const float sum = row_sum(total[r]);
        if (t[r] < T) {
            store_row<DP>(acc, r, 1.0f / sum, D, o + ((b * T + t[r]) * a.H + h) * D);
            if (lane % 4 == 0) {
                lse[(b * a.H + h) * T + t[r]] = top[r] * kLn2 + logf(sum);
            }
        }
    }
}

// A query's values for the gradient.
struct QueryBack {
    float lse2, delta;  // lse to base 2
    Seen  seen;

    // The weight of a key from its score.
    __device__ float weight(int key, float s, float scale) const {
        return seen.has(key) ? exp2f(s * (scale * kLog2e) - lse2) : 0.0f;
    }
};

__device__ inline QueryBack query_back(
    const Attention & a, int64_t b, int64_t h, int t, const float * lse, const float * delta
) {
    const int64_t at = (b * a.H + h) * a.T + t;
    return {t < a.T ? lse[at] * kLog2e : 0.0f, t < a.T ? delta[at] : 0.0f, seen_by(a, b, t)};
}

// dq: rows are queries, columns keys.
template <int ND>
__global__ void __launch_bounds__(kMmaThreads) attention_bf16_dq_kernel(
    Attention        a,
    float            scale,
    const uint16_t * qkv,
    const float *    lse,
    const float *    delta,
    const uint16_t * d_o,
    uint16_t *       dqkv
) {
    constexpr int DP = ND * 32, N = kMmaColumns<ND>;
    GT_DYNAMIC_SHARED(unsigned, q);
    unsigned *       g = q + kMmaRows * kRowWords<DP>;  // d_o
    unsigned *       k = g + kMmaRows * kRowWords<DP>, *v = k + N * kRowWords<DP>;
    const Heads      at(a);
    const int        T = int(a.T), D = int(a.D), row0 = threadIdx.x / 32 * 16;
    const int        lane = threadIdx.x % 32, first = int(blockIdx.x) * kMmaRows;
    const int64_t    h = blockIdx.y, b = blockIdx.z, hk = h / (a.H / a.Hkv);
    const uint16_t * batch = qkv + b * a.T * at.ld();
    load_tile<DP, kMmaRows>(batch + at.q(h), at.ld(), first, T, D, q);
    load_tile<DP, kMmaRows>(d_o + (b * a.T * a.H + h) * D, a.H * D, first, T, D, g);

    float     acc[DP / 8][4] = {};
    QueryBack query[2];
    for (int r = 0; r < 2; ++r) {
        query[r] = query_back(a, b, h, first + row0 + lane / 4 + 8 * r, lse, delta);
    }
    const int end = a.causal && first + kMmaRows < T ? first + kMmaRows : T;
    for (int k0 = seen_by(a, b, first).begin / N * N; k0 < end; k0 += N) {
        __syncthreads();
        load_tile<DP, N>(batch + at.k(hk), at.ld(), k0, T, D, k);
        load_tile<DP, N>(batch + at.v(hk), at.ld(), k0, T, D, v);
        __syncthreads();
        float s[N / 8][4], dp[N / 8][4];
        scores<DP, N>(s, q, row0, k);
        scores<DP, N>(dp, g, row0, v);
        // dS = P * (dP - delta)
        for (int j = 0; j < N / 8; ++j) {
            for (int i = 0; i < 4; ++i) {
                const QueryBack & one = query[i / 2];
                const int         key = k0 + j * 8 + lane % 4 * 2 + i % 2;
                s[j][i] = one.weight(key, s[j][i], scale) * (dp[j][i] - one.delta) * scale;
            }
        }
        add_product<DP, N>(acc, s, k);  // dQ += dS K
    }
    for (int r = 0; r < 2; ++r) {
        const int t = first + row0 + lane / 4 + 8 * r;
        if (t < T) {
            store_row<DP>(acc, r, 1.0f, D, dqkv + (b * T + t) * at.ld() + at.q(h));
        }
    }
}

// dk and dv: rows are keys, columns queries, of all query heads that use the key head.
template <int ND>
__global__ void __launch_bounds__(kMmaThreads) attention_bf16_dkv_kernel(
    Attention        a,
    float            scale,
    const uint16_t * qkv,
    const float *    lse,
    const float *    delta,
    const uint16_t * d_o,
    uint16_t *       dqkv
) {
    constexpr int DP = ND * 32, N = kMmaColumns<ND>;
    GT_SHARED(QueryBack, query, N);
    GT_DYNAMIC_SHARED(unsigned, k);
    unsigned *       v = k + kMmaRows * kRowWords<DP>;
    unsigned *       q = v + kMmaRows * kRowWords<DP>, *g = q + N * kRowWords<DP>;  // g: d_o
    const Heads      at(a);
    const int        T = int(a.T), D = int(a.D), row0 = threadIdx.x / 32 * 16;
    const int        lane = threadIdx.x % 32, first = int(blockIdx.x) * kMmaRows;
    const int64_t    hk = blockIdx.y, b = blockIdx.z, group = a.H / a.Hkv;
    const uint16_t * batch = qkv + b * a.T * at.ld();
    load_tile<DP, kMmaRows>(batch + at.k(hk), at.ld(), first, T, D, k);
    load_tile<DP, kMmaRows>(batch + at.v(hk), at.ld(), first, T, D, v);

    float dk[DP / 8][4] = {}, dv[DP / 8][4] = {};
    for (int64_t h = hk * group; h < (hk + 1) * group; ++h) {
        for (int q0 = a.causal ? first / N * N : 0; q0 < T; q0 += N) {
            if (seen_by(a, b, q0).begin >= first + kMmaRows) {
                break;  // later segments do not see these keys
            }
            __syncthreads();
            load_tile<DP, N>(batch + at.q(h), at.ld(), q0, T, D, q);
            load_tile<DP, N>(d_o + (b * a.T * a.H + h) * D, a.H * D, q0, T, D, g);
            if (int(threadIdx.x) < N) {
                query[threadIdx.x] = query_back(a, b, h, q0 + int(threadIdx.x), lse, delta);
            }
            __syncthreads();
            float p[N / 8][4], ds[N / 8][4];
            scores<DP, N>(p, k, row0, q);
            scores<DP, N>(ds, v, row0, g);
            // P, and dS = P * (dP - delta)
            for (int j = 0; j < N / 8; ++j) {
                for (int i = 0; i < 4; ++i) {
                    const QueryBack & one = query[j * 8 + lane % 4 * 2 + i % 2];
                    const int         key = first + row0 + lane / 4 + i / 2 * 8;
                    p[j][i]               = one.weight(key, p[j][i], scale);
                    ds[j][i]              = p[j][i] * (ds[j][i] - one.delta) * scale;
                }
            }
            add_product<DP, N>(dv, p, g);   // dV += P' dO
            add_product<DP, N>(dk, ds, q);  // dK += dS' Q
        }
    }
    for (int r = 0; r < 2; ++r) {
        const int t = first + row0 + lane / 4 + 8 * r;
        if (t < T) {
            const int64_t row = (b * T + t) * at.ld();
            store_row<DP>(dk, r, 1.0f, D, dqkv + row + at.k(hk));
            store_row<DP>(dv, r, 1.0f, D, dqkv + row + at.v(hk));
        }
    }
}

}  // namespace gt::cuda
