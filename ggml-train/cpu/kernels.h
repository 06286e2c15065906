// ggml-train/cpu/kernels.h — fused CPU kernels: plain arrays in, plain arrays out; no ggml.
//
// Every function is called once by each of `part.n` threads with its own `part.i`, computes its share of
// the result and returns: no barrier, no thread pool, no allocation that outlives the call. Shares
// depend on shapes and part alone, and sums have a fixed order, so that the same thread count gives
// the same bits. Matrices are row-major: [rows x cols], `ld` floats from row to row.
// ops.cpp wraps these as graph nodes; tests/engine/test-kernels.cpp compares them with plain loops.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gt::cpu {

// One line per argument would hide the list of functions.
// clang-format off

struct Part {
    int i = 0;  // this thread
    int n = 1;  // number of threads
};

struct Range {
    int64_t begin = 0, end = 0;
};

// This thread's share of n items, cut at multiples of `grain`; shares differ by one grain at most.
inline Range share(Part part, int64_t n, int64_t grain = 1) {
    const int64_t n_grains = (n + grain - 1) / grain;
    return {
        std::min(n, n_grains * part.i / part.n * grain),
        std::min(n, n_grains * (part.i + 1) / part.n * grain)};
}

// ---- gemm.cpp: single-threaded library GEMM on each thread's slice of the output ----------------

// C [M x N] = op(A) [M x K] * op(B) [K x N] + beta * C, beta 0 or 1 (0 never reads C).
// Then, if given: every row of C += bias [N], and C += residual [M x N, ld = ldc], which may be the old
// C.
// The share of a thread depends on M, N and part alone, never on K or transposition: two calls on
// the same C may follow one another without a barrier.
struct Gemm {
    bool          ta = false, tb = false;  // op(X) = X transposed
    int64_t       M = 0, N = 0, K = 0;
    const float * A        = nullptr;
    int64_t       lda      = 0;
    const float * B        = nullptr;
    int64_t       ldb      = 0;
    float *       C        = nullptr;
    int64_t       ldc      = 0;
    float         beta     = 0.0f;
    const float * bias     = nullptr;
    const float * residual = nullptr;
};
void gemm(Part part, const Gemm & g);

// ---- norm.cpp ------------------------------------------------------------------------------------

// y = (x - mean) / sqrt(var + eps) * w + b; x, y [rows x C]. stats [rows x 2]: mean, 1/deviation.
// rms_norm: no mean, no b; stats [rows x 2]: 0, 1/rms. `w` and `b` may not be null for layer_norm.
void layer_norm(Part part, int64_t rows, int64_t C, float eps, const float * x, const float * w,
                const float * b, float * y, float * stats);
void rms_norm(Part part, int64_t rows, int64_t C, float eps, const float * x, const float * w,
              float * y, float * stats);

// dx = add + gradient to x, rows split over threads; add [rows x C] may be null; dx may be add.
void layer_norm_back(Part part, int64_t rows, int64_t C, const float * dy, const float * x,
                     const float * w, const float * stats, const float * add, float * dx);
void rms_norm_back(Part part, int64_t rows, int64_t C, const float * dy, const float * x,
                   const float * w, const float * stats, const float * add, float * dx);

// dw = beta*dw + sum over rows of dy * normalised x; db = beta*db + sum of dy (db null: skipped).
// Columns are split over threads. Serves both norms (rms: mean in stats is 0).
void norm_back_params(Part part, int64_t rows, int64_t C, const float * dy, const float * x,
                      const float * stats, float beta, float * dw, float * db);

// out [C] = beta*out + sum of the rows of x [rows x C, ld]. Columns are split over threads.
void sum_rows(Part part, int64_t rows, int64_t C, const float * x, int64_t ld, float beta, float * out);

// ---- activation.cpp ------------------------------------------------------------------------------

enum class Gelu { tanh, erf };
void gelu(Part part, int64_t n, Gelu kind, const float * x, float * y);
// dx = dy * gelu'(x); dx may be dy.
void gelu_back(Part part, int64_t n, Gelu kind, const float * x, const float * dy, float * dx);

// y = silu(gate) * up
void swiglu(Part part, int64_t n, const float * gate, const float * up, float * y);
// gradients to both; dgate or dup may be dy.
void swiglu_back(Part part, int64_t n, const float * gate, const float * up, const float * dy,
                 float * dgate, float * dup);

// y = x / (1 - rate), or 0 with probability rate; y may be x. x [B*T x C]: what is dropped of a sample depends on
// its key, the layer, and the place in the sample.
struct Dropout {
    int64_t         B = 0, T = 0, C = 0;
    const int32_t * keys  = nullptr;  // [B]
    int32_t         layer = 0;
    float           rate  = 0.0f;
};
void dropout(Part part, const Dropout & dropout, const float * x, float * y);

// Rotates pairs of the first n_rot heads of each token of x [B*T x n_heads*D] by the angles
// t / divisors[pair], t the token's position, and multiplies by scale; copies the other heads. A pair is two
// neighbours, or with neox i and i + D/2. backward: by the opposite angle. y may be x.
struct Rope {
    int64_t       B = 0, T = 0, n_heads = 0, n_rot = 0, D = 0;
    const float * divisors = nullptr;  // [D/2]
    float         scale    = 1.0f;
    bool          neox     = false;
};
void rope(Part part, const Rope & rope, bool backward, const float * x, float * y);

// ---- attention.cpp: tiled, never a T x T matrix in memory -----------------------------------------

// One token's row of qkv [B*T x (H + 2*Hkv)*D]: H query heads, then Hkv key heads, then Hkv value
// heads. Query head h uses key head h / (H / Hkv). Scale 1/sqrt(D).
// positions [B*T]: the place of each token in its segment; a token sees its own segment only. Null: a
// sequence is one segment. REQUIRES: causal, if given.
struct Attention {
    int64_t         B = 0, T = 0, H = 0, Hkv = 0, D = 0;
    bool            causal    = true;
    const int32_t * positions = nullptr;

    // The first token of the segment of token t of sequence b.
    int64_t segment(int64_t b, int64_t t) const { return positions ? t - positions[b * T + t] : 0; }
};
// o [B*T x H*D]; lse [B x H x T]: log of the sum of exponentials of each row of scores.
void attention(Part part, const Attention & a, const float * qkv, float * o, float * lse);
// dqkv laid out as qkv.
void attention_back(Part part, const Attention & a, const float * qkv, const float * o,
                    const float * lse, const float * d_o, float * dqkv);

// ---- embedding.cpp -------------------------------------------------------------------------------

// x [n x C] = table[ids[i]] (+ position[i % T] if position is not null).
void embedding(Part part, int64_t n, int64_t T, int64_t C, const int32_t * ids, const float * table,
               const float * position, float * x);
// table [V x C] = beta*table + sum of rows dx[i] at ids[i], in order of i (columns over threads).
void embedding_back(Part part, int64_t n, int64_t V, int64_t C, const int32_t * ids, const float * dx,
                    float beta, float * table);
// position [T x C] = beta*position + sum over b of dx[b*T + t].
void position_back(Part part, int64_t B, int64_t T, int64_t C, const float * dx, float beta,
                   float * position);

// ---- loss.cpp ------------------------------------------------------------------------------------

// Cross entropy from label indices. logits [rows x ld], the first V columns count. A label < 0 is
// ignored. smoothing e: target (1-e) on the label plus e/V everywhere.
// loss[r]: the row's loss (0 if ignored). If `grad`, logits are replaced by their gradient times
// `scale` (all zero for an ignored row and in the columns V..ld).
void cross_entropy(Part part, int64_t rows, int64_t V, int64_t ld, float * logits,
                   const int32_t * labels, float smoothing, float scale, bool grad, float * loss);

}  // namespace gt::cpu
