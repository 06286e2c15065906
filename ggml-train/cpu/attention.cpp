// ggml-train/cpu/attention.cpp — exact attention by tiles, as FlashAttention (arXiv 2205.14135).
//
// One unit of work is one key head of one sequence with all query heads that use it. Its keys and
// values are packed once; then query tiles meet key tiles, and the scores of one query tile with a
// few key tiles are all that is ever stored. Products are those of tile.h; under a causal mask each
// block of rows takes only the columns it may see.
#include "ggml-train/cpu/tile.h"

#include <cmath>
#include <vector>

namespace gt::cpu {

namespace {

constexpr int64_t kTile    = 64;  // rows of a tile,
constexpr int64_t kOneTile = 96;  // unless this or less makes do with one: the 65 tokens of a small ViT
constexpr int64_t kStrip   = 4;   // key tiles that share one pass of the forward softmax
constexpr int64_t kAhead   = 16;  // rows fetched ahead of their use
constexpr float   kMasked  = -1e30f;

// Sizes shared by both directions.
struct Plan {
    int64_t D;     // head size, padded to registers
    int64_t tile;  // rows of a tile, a multiple of kLanes
    int64_t ld;    // from token to token in qkv
    int64_t group; // query heads per key head
    float   scale;

    explicit Plan(const Attention & a)
        : D(round_up(a.D, kLanes)), ld((a.H + 2 * a.Hkv) * a.D), group(a.H / a.Hkv),
          scale(1.0f / std::sqrt((float) a.D)) {
        const int64_t n_tiles = a.T <= kOneTile ? 1 : (a.T + kTile - 1) / kTile;
        tile                  = round_up((a.T + n_tiles - 1) / n_tiles, kLanes);
    }
};

// Scratch of one thread, cut into pieces that start on cache lines.
class Scratch {
public:
    explicit Scratch(int64_t n) : memory_(buffer()) {
        if ((int64_t) memory_.size() < n + 16) {
            memory_.resize(n + 16);
        }
        next_ = memory_.data();
        next_ += (64 - ((uintptr_t) next_ & 63)) / sizeof(float) % 16;
    }
    float * take(int64_t n) {
        float * p = next_;
        next_ += round_up(n, 16);
        return p;
    }

private:
    static std::vector<float> & buffer() {
        thread_local std::vector<float> memory;
        return memory;
    }
    std::vector<float> & memory_;
    float *              next_;
};

// Heads lie apart in memory, too short for the CPU to guess what comes next.
template <bool kToWrite>
void prefetch(int64_t D, const float * x) {
    for (int64_t i = 0; i < D; i += 16) {
        __builtin_prefetch(x + i, kToWrite);
    }
}

// out [rows x padded] = factor * x [rows x D, ld], the padding zero.
void pack(int64_t rows, int64_t D, int64_t padded, const float * x, int64_t ld, float factor,
          float * out) {
    for (int64_t r = 0; r < rows; ++r) {
        prefetch<false>(D, x + (r + kAhead) * ld);
        each(D, [&](int64_t i, auto k) {
            store(out + r * padded + i, load(x + r * ld + i, k) * factor);
        });
    }
}

// out [D x padded] = x [rows x D, ld] transposed, the padding zero.
void pack_transposed(int64_t rows, int64_t D, int64_t padded, const float * x, int64_t ld,
                     float * out) {
    for (int64_t r = 0; r < padded; r += kLanes) {
        for (int i = 0; i < kLanes; ++i) {
            prefetch<false>(D, x + (r + i + kAhead) * ld);
        }
        each(D, [&](int64_t d, auto k) {
            Vec square[kLanes];
            for (int i = 0; i < kLanes; ++i) {
                square[i] = r + i < rows ? load(x + (r + i) * ld + d, k) : Vec{};
            }
            transpose(square);
            for (int i = 0; i < kLanes; ++i) {
                store(out + (d + i) * padded + r, square[i]);
            }
        });
    }
}

// x [rows x D, ld] = packed [rows x padded]
void unpack(int64_t rows, int64_t D, int64_t padded, const float * packed, float * x, int64_t ld) {
    for (int64_t r = 0; r < rows; ++r) {
        prefetch<true>(D, x + (r + kAhead) * ld);
        std::memcpy(x + r * ld, packed + r * padded, (size_t) D * sizeof(float));
    }
}

// A pair of tiles: queries q0 .. q0+nq against keys k0 .. k0+nk.
struct Pair {
    int64_t q0, nq, k0, nk;
    bool    causal;

    // Keys the query row i of the tile may see, counted within the tile.
    int64_t seen(int64_t i) const {
        return causal ? std::clamp<int64_t>(q0 + i + 1 - k0, 0, nk) : nk;
    }
    // The first query row of the tile that sees key j of the tile.
    int64_t first(int64_t j) const {
        return causal ? std::clamp<int64_t>(k0 + j - q0, 0, nq) : 0;
    }
    // Keys that a block of register-tile rows from i on may see.
    int64_t seen_by_block(int64_t i) const { return seen(std::min(i + kTileRows, nq) - 1); }
};

// s [nq x nk, lds] = q [nq x D, ldq] * kt [D x tile], as far as the mask lets see.
void scores(const Pair & p, int64_t D, const float * q, int64_t ldq, const float * kt, int64_t tile,
            float * s, int64_t lds) {
    for (int64_t i = 0; i < p.nq; i += kTileRows) {
        const int R = (int) std::min<int64_t>(kTileRows, p.nq - i);
        tile_rows(R, round_up(p.seen_by_block(i), kLanes), D, {q + i * ldq, ldq, 1}, kt, tile,
                  s + i * lds, lds, false);
    }
}

// out [nq x D] (+)= s [nq x nk, lds] * x [nk x D]
void rows_product(const Pair & p, const float * s, int64_t lds, const float * x, int64_t D,
                  float * out, bool add) {
    for (int64_t i = 0; i < p.nq; i += kTileRows) {
        const int R = (int) std::min<int64_t>(kTileRows, p.nq - i);
        tile_rows(R, D, p.seen_by_block(i), {s + i * lds, lds, 1}, x, D, out + i * D, D, add);
    }
}

// out [nk x D] += s [nq x nk, lds] transposed * x [nq x D]
void columns_product(const Pair & p, const float * s, int64_t lds, const float * x, int64_t D,
                     float * out) {
    for (int64_t j = 0; j < p.nk; j += kTileRows) {
        const int     R  = (int) std::min<int64_t>(kTileRows, p.nk - j);
        const int64_t i0 = p.first(j);
        tile_rows(R, D, p.nq - i0, {s + i0 * lds + j, 1, lds}, x + i0 * D, D, out + j * D, D, true);
    }
}

// The running softmax of one row: s becomes exp(s - top), out is brought to the new top.
void softmax_row(int64_t n_seen, int64_t n_block, float * s, int64_t D, float * out, bool first,
                 float & top, float & total) {
    Vec most = splat(first ? kMasked : top);
    each(n_seen, [&](int64_t j, auto k) { most = max(most, keep(load(s + j, k), kMasked, k)); });
    const float new_top = max(most);
    if (!first && new_top > top) {
        const float shrink = exp(splat(top - new_top))[0];
        each(D, [&](int64_t d, auto k) { store(out + d, load(out + d, k) * shrink, k); });
        total *= shrink;
    }
    Vec added = {};
    each(n_seen, [&](int64_t j, auto k) {
        const Vec e = keep(exp(load(s + j, k) - new_top), 0.0f, k);
        added += e;
        store(s + j, e);
    });
    for (int64_t j = round_up(n_seen, kLanes); j < n_block; ++j) {
        s[j] = 0.0f;  // seen by a later row of the same block
    }
    top   = new_top;
    total = sum(added) + (first ? 0.0f : total);
}

}  // namespace

void attention(Part part, const Attention & a, const float * qkv, float * o, float * lse) {
    const Plan    plan(a);
    const int64_t T = a.T, D = plan.D, tile = plan.tile;
    const int64_t padded_T = round_up(T, tile), strip = std::min(kStrip * tile, padded_T);

    Scratch scratch(2 * padded_T * D + 2 * tile * D + tile * strip + 2 * tile + 128);
    float * kt     = scratch.take(padded_T * D);  // per tile [D x tile]
    float * v      = scratch.take(padded_T * D);  // [T x D]
    float * q      = scratch.take(tile * D);
    float * out    = scratch.take(tile * D);
    float * s      = scratch.take(tile * strip);
    float * tops   = scratch.take(tile);
    float * totals = scratch.take(tile);

    const Range mine = share(part, a.B * a.Hkv);
    for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
        const int64_t b = unit / a.Hkv, hkv = unit % a.Hkv;
        const float * keys   = qkv + b * T * plan.ld + (a.H + hkv) * a.D;
        const float * values = keys + a.Hkv * a.D;
        for (int64_t k0 = 0; k0 < T; k0 += tile) {
            pack_transposed(std::min(tile, T - k0), a.D, tile, keys + k0 * plan.ld, plan.ld,
                            kt + k0 * D);
        }
        pack(T, a.D, D, values, plan.ld, 1.0f, v);

        for (int64_t h = hkv * plan.group; h < (hkv + 1) * plan.group; ++h) {
            for (int64_t q0 = 0; q0 < T; q0 += tile) {
                const int64_t nq     = std::min(tile, T - q0);
                const int64_t n_keys = a.causal ? q0 + nq : T;
                pack(nq, a.D, D, qkv + (b * T + q0) * plan.ld + h * a.D, plan.ld, plan.scale, q);

                for (int64_t k0 = 0; k0 < n_keys; k0 += strip) {
                    const Pair p{q0, nq, k0, std::min(strip, n_keys - k0), a.causal};
                    for (int64_t k1 = k0; k1 < k0 + p.nk; k1 += tile) {
                        const Pair one{q0, nq, k1, std::min(tile, n_keys - k1), a.causal};
                        scores(one, a.D, q, D, kt + k1 * D, tile, s + (k1 - k0), strip);
                    }
                    for (int64_t i = 0; i < nq; ++i) {
                        softmax_row(p.seen(i), p.seen_by_block(i / kTileRows * kTileRows),
                                    s + i * strip, D, out + i * D, k0 == 0, tops[i], totals[i]);
                    }
                    rows_product(p, s, strip, v + k0 * D, D, out, k0 > 0);
                }

                for (int64_t i = 0; i < nq; ++i) {
                    const float inv = 1.0f / totals[i];
                    float *     to  = o + (b * T + q0 + i) * a.H * a.D + h * a.D;
                    each(a.D, [&](int64_t d, auto k) {
                        store(to + d, load(out + i * D + d, k) * inv, k);
                    });
                    lse[(b * a.H + h) * T + q0 + i] = tops[i] + std::log(totals[i]);
                }
            }
        }
    }
}

// With P the weights: dV = P' dO, dP = dO V', dS = P * (dP - sum(dO * O)), dQ = dS K, dK = dS' Q.
void attention_back(Part part, const Attention & a, const float * qkv, const float * o,
                    const float * lse, const float * d_o, float * dqkv) {
    const Plan    plan(a);
    const int64_t T = a.T, D = plan.D, tile = plan.tile;
    const int64_t padded_T = round_up(T, tile);

    Scratch scratch(5 * padded_T * D + 3 * tile * D + 2 * tile * tile + tile + 256);
    float * k     = scratch.take(padded_T * D);  // [T x D]
    float * kt    = scratch.take(padded_T * D);  // per tile [D x tile]
    float * vt    = scratch.take(padded_T * D);  // per tile [D x tile]
    float * dk    = scratch.take(padded_T * D);
    float * dv    = scratch.take(padded_T * D);
    float * q     = scratch.take(tile * D);
    float * dq    = scratch.take(tile * D);
    float * dout  = scratch.take(tile * D);
    float * s     = scratch.take(tile * tile);
    float * ds    = scratch.take(tile * tile);
    float * delta = scratch.take(tile);

    const Range mine = share(part, a.B * a.Hkv);
    for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
        const int64_t b = unit / a.Hkv, hkv = unit % a.Hkv;
        const int64_t keys = b * T * plan.ld + (a.H + hkv) * a.D, values = keys + a.Hkv * a.D;
        for (int64_t k0 = 0; k0 < T; k0 += tile) {
            const int64_t n = std::min(tile, T - k0);
            pack_transposed(n, a.D, tile, qkv + keys + k0 * plan.ld, plan.ld, kt + k0 * D);
            pack_transposed(n, a.D, tile, qkv + values + k0 * plan.ld, plan.ld, vt + k0 * D);
        }
        pack(T, a.D, D, qkv + keys, plan.ld, plan.scale, k);
        std::fill(dk, dk + T * D, 0.0f);
        std::fill(dv, dv + T * D, 0.0f);

        for (int64_t h = hkv * plan.group; h < (hkv + 1) * plan.group; ++h) {
            for (int64_t q0 = 0; q0 < T; q0 += tile) {
                const int64_t nq      = std::min(tile, T - q0);
                const int64_t queries = (b * T + q0) * plan.ld + h * a.D;
                const int64_t outs    = (b * T + q0) * a.H * a.D + h * a.D;
                const float * row_lse = lse + (b * a.H + h) * T + q0;
                pack(nq, a.D, D, qkv + queries, plan.ld, plan.scale, q);
                pack(nq, a.D, D, d_o + outs, a.H * a.D, 1.0f, dout);
                for (int64_t i = 0; i < nq; ++i) {
                    const float * oi = o + outs + i * a.H * a.D;
                    delta[i] = sum_each(a.D, [&](int64_t d, auto kk) {
                        return load(oi + d, kk) * load(dout + i * D + d, kk);
                    });
                }

                for (int64_t k0 = 0; k0 < (a.causal ? q0 + nq : T); k0 += tile) {
                    const Pair p{q0, nq, k0, std::min(tile, T - k0), a.causal};
                    scores(p, a.D, q, D, kt + k0 * D, tile, s, tile);
                    scores(p, a.D, dout, D, vt + k0 * D, tile, ds, tile);
                    for (int64_t i = 0; i < nq; ++i) {
                        float *       si  = s + i * tile;
                        float *       dsi = ds + i * tile;
                        const int64_t n   = p.seen(i);
                        each(n, [&](int64_t j, auto kk) {
                            const Vec e = keep(exp(load(si + j, kk) - row_lse[i]), 0.0f, kk);
                            store(si + j, e);
                            store(dsi + j, e * (load(dsi + j, kk) - delta[i]));
                        });
                        for (int64_t j = round_up(n, kLanes); j < p.nk; ++j) {
                            si[j] = dsi[j] = 0.0f;
                        }
                    }
                    columns_product(p, s, tile, dout, D, dv + k0 * D);
                    columns_product(p, ds, tile, q, D, dk + k0 * D);
                    rows_product(p, ds, tile, k + k0 * D, D, dq, k0 > 0);
                }
                unpack(nq, a.D, D, dq, dqkv + queries, plan.ld);
            }
        }
        unpack(T, a.D, D, dk, dqkv + keys, plan.ld);
        unpack(T, a.D, D, dv, dqkv + values, plan.ld);
    }
}

}  // namespace gt::cpu
