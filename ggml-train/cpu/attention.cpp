// ggml-train/cpu/attention.cpp — exact attention by tiles, as FlashAttention (arXiv 2205.14135).
//
// One unit of work is one key head of one sequence with all query heads that use it. Its keys and
// values are packed once; then query tiles meet key tiles, and the scores of one query tile with a
// few key tiles are all that is ever stored. Products are those of tile.h; under a causal mask each
// block of rows takes only the columns it may see.
#include "ggml-train/cpu/tile.h"

#include <cmath>

namespace gt::cpu {

namespace {

constexpr int64_t kTile    = 64;  // rows of a tile
constexpr int64_t kOneTile = 96;  // with at most this many tokens, one tile: 65 in a small ViT
constexpr int64_t kStrip   = 4;   // key tiles that share one pass of the forward softmax
constexpr float   kMasked  = -1e30f;

// Sizes shared by both directions.
struct Plan {
    int64_t D;      // head size, padded to registers
    int64_t tile;   // rows of a tile, a multiple of kLanes
    int64_t ld;     // from token to token in qkv
    int64_t group;  // query heads per key head
    float   scale;

    explicit Plan(const Attention & a)
        : D(round_up(a.D, kLanes)), ld((a.H + 2 * a.Hkv) * a.D), group(a.H / a.Hkv),
          scale(1.0f / std::sqrt((float) a.D)) {
        const int64_t n_tiles = a.T <= kOneTile ? 1 : (a.T + kTile - 1) / kTile;
        tile                  = round_up((a.T + n_tiles - 1) / n_tiles, kLanes);
    }
};

// A pair of tiles: queries q0 .. q0+nq against keys k0 .. k0+nk, of sequence b.
struct Pair {
    int64_t           q0, nq, k0, nk;
    const Attention & a;
    int64_t           b;

    // Keys the query row i of the tile may see, counted within the tile.
    int64_t seen(int64_t i) const {
        return a.causal ? std::clamp<int64_t>(q0 + i + 1 - k0, 0, nk) : nk;
    }
    // The first of these that belong to earlier segments.
    int64_t hidden(int64_t i) const {
        return std::clamp<int64_t>(a.segment(b, q0 + i) - k0, 0, seen(i));
    }
    // The first query row of the tile that sees key j of the tile.
    int64_t first(int64_t j) const {
        return a.causal ? std::clamp<int64_t>(k0 + j - q0, 0, nq) : 0;
    }
    // Keys that a block of register-tile rows from i on may see.
    int64_t seen_by_block(int64_t i) const { return seen(std::min(i + kTileRows, nq) - 1); }
};

// s [nq x nk, lds] = q [nq x D, ldq] * kt [D x tile], within the mask.
void scores(
    const Pair &  p,
    int64_t       D,
    const float * q,
    int64_t       ldq,
    const float * kt,
    int64_t       tile,
    float *       s,
    int64_t       lds
) {
    for (int64_t i = 0; i < p.nq; i += kTileRows) {
        const int R = (int) std::min<int64_t>(kTileRows, p.nq - i);
        tile_rows(
            R, round_up(p.seen_by_block(i), kLanes), D, {q + i * ldq, ldq, 1}, kt, tile,
            s + i * lds, lds, false
        );
    }
}

// out [nq x D] (+)= s [nq x nk, lds] * x [nk x D]
void rows_product(
    const Pair & p, const float * s, int64_t lds, const float * x, int64_t D, float * out, bool add
) {
    for (int64_t i = 0; i < p.nq; i += kTileRows) {
        const int R = (int) std::min<int64_t>(kTileRows, p.nq - i);
        tile_rows(R, D, p.seen_by_block(i), {s + i * lds, lds, 1}, x, D, out + i * D, D, add);
    }
}

// out [nk x D] += s [nq x nk, lds] transposed * x [nq x D]
void columns_product(
    const Pair & p, const float * s, int64_t lds, const float * x, int64_t D, float * out
) {
    for (int64_t j = 0; j < p.nk; j += kTileRows) {
        const int     R  = (int) std::min<int64_t>(kTileRows, p.nk - j);
        const int64_t i0 = p.first(j);
        tile_rows(R, D, p.nq - i0, {s + i0 * lds + j, 1, lds}, x + i0 * D, D, out + j * D, D, true);
    }
}

// The running softmax of one row: s becomes exp(s - top), out is brought to the new top.
void softmax_row(
    int64_t n_hidden,
    int64_t n_seen,
    int64_t n_block,
    float * s,
    int64_t D,
    float * out,
    bool    first,
    float & top,
    float & total
) {
    std::fill(s, s + n_hidden, kMasked);
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
        // pack keys and values of the unit
        for (int64_t k0 = 0; k0 < T; k0 += tile) {
            pack_transposed(
                std::min(tile, T - k0), a.D, tile, keys + k0 * plan.ld, plan.ld, kt + k0 * D
            );
        }
        pack(T, a.D, D, values, plan.ld, 1.0f, v);

        for (int64_t h = hkv * plan.group; h < (hkv + 1) * plan.group; ++h) {
            for (int64_t q0 = 0; q0 < T; q0 += tile) {
                const int64_t nq     = std::min(tile, T - q0);
                const int64_t n_keys = a.causal ? q0 + nq : T;
                const int64_t begin  = a.segment(b, q0) / strip * strip;
                pack(nq, a.D, D, qkv + (b * T + q0) * plan.ld + h * a.D, plan.ld, plan.scale, q);

                // scores, running softmax and output, a strip of keys at a time
                for (int64_t k0 = begin; k0 < n_keys; k0 += strip) {
                    const Pair p{q0, nq, k0, std::min(strip, n_keys - k0), a, b};
                    for (int64_t k1 = k0; k1 < k0 + p.nk; k1 += tile) {
                        const Pair one{q0, nq, k1, std::min(tile, n_keys - k1), a, b};
                        scores(one, a.D, q, D, kt + k1 * D, tile, s + (k1 - k0), strip);
                    }
                    for (int64_t i = 0; i < nq; ++i) {
                        softmax_row(
                            p.hidden(i), p.seen(i), p.seen_by_block(i / kTileRows * kTileRows),
                            s + i * strip, D, out + i * D, k0 == begin, tops[i], totals[i]
                        );
                    }
                    rows_product(p, s, strip, v + k0 * D, D, out, k0 > begin);
                }

                // normalise the output
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

namespace {

// Scratch of one thread for the backward pass of one unit.
struct BackTiles {
    float * k;        // [T x D], scaled
    float * kt, *vt;  // per tile [D x tile]
    float * dk, *dv;  // [T x D]
    float * q, *dq;   // [tile x D], q scaled
    float * dout;     // [tile x D]
    float * s, *ds;   // [tile x tile]
    float * delta;    // [tile]

    BackTiles(int64_t T, int64_t tile, int64_t D) {
        Scratch scratch(5 * T * D + 3 * tile * D + 2 * tile * tile + tile + 256);
        for (float ** whole : {&k, &kt, &vt, &dk, &dv}) {
            *whole = scratch.take(T * D);
        }
        for (float ** one : {&q, &dq, &dout}) {
            *one = scratch.take(tile * D);
        }
        s     = scratch.take(tile * tile);
        ds    = scratch.take(tile * tile);
        delta = scratch.take(tile);
    }
};

// s: scores become weights P = exp(s - lse); ds: dP becomes P * (dP - delta). Masked: zero.
void weights_back(const Pair & p, int64_t tile, const float * lse, const BackTiles & m) {
    for (int64_t i = 0; i < p.nq; ++i) {
        float *       s    = m.s + i * tile;
        float *       ds   = m.ds + i * tile;
        const int64_t seen = p.seen(i);
        each(seen, [&](int64_t j, auto k) {
            const Vec e = keep(exp(load(s + j, k) - lse[i]), 0.0f, k);
            store(s + j, e);
            store(ds + j, e * (load(ds + j, k) - m.delta[i]));
        });
        for (int64_t j = round_up(seen, kLanes); j < p.nk; ++j) {
            s[j] = ds[j] = 0.0f;
        }
        std::fill(s, s + p.hidden(i), 0.0f);
        std::fill(ds, ds + p.hidden(i), 0.0f);
    }
}

}  // namespace

// With P the weights: dV = P' dO, dP = dO V', dS = P * (dP - sum(dO * O)), dQ = dS K, dK = dS' Q.
void attention_back(
    Part              part,
    const Attention & a,
    const float *     qkv,
    const float *     o,
    const float *     lse,
    const float *     d_o,
    float *           dqkv
) {
    const Plan      plan(a);
    const int64_t   T = a.T, D = plan.D, tile = plan.tile, ldo = a.H * a.D;
    const BackTiles m(round_up(T, tile), tile, D);

    const Range mine = share(part, a.B * a.Hkv);
    for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
        const int64_t b = unit / a.Hkv, hkv = unit % a.Hkv;
        const int64_t keys = b * T * plan.ld + (a.H + hkv) * a.D, values = keys + a.Hkv * a.D;
        // pack keys and values of the unit, clear their gradients
        for (int64_t k0 = 0; k0 < T; k0 += tile) {
            const int64_t n = std::min(tile, T - k0);
            pack_transposed(n, a.D, tile, qkv + keys + k0 * plan.ld, plan.ld, m.kt + k0 * D);
            pack_transposed(n, a.D, tile, qkv + values + k0 * plan.ld, plan.ld, m.vt + k0 * D);
        }
        pack(T, a.D, D, qkv + keys, plan.ld, plan.scale, m.k);
        std::fill(m.dk, m.dk + T * D, 0.0f);
        std::fill(m.dv, m.dv + T * D, 0.0f);

        for (int64_t h = hkv * plan.group; h < (hkv + 1) * plan.group; ++h) {
            for (int64_t q0 = 0; q0 < T; q0 += tile) {
                const int64_t nq      = std::min(tile, T - q0);
                const int64_t queries = (b * T + q0) * plan.ld + h * a.D;
                const int64_t outs    = (b * T + q0) * ldo + h * a.D;
                pack(nq, a.D, D, qkv + queries, plan.ld, plan.scale, m.q);
                pack(nq, a.D, D, d_o + outs, ldo, 1.0f, m.dout);
                // delta = sum(dO * O)
                for (int64_t i = 0; i < nq; ++i) {
                    m.delta[i] = sum_each(a.D, [&](int64_t d, auto k) {
                        return load(o + outs + i * ldo + d, k) * load(m.dout + i * D + d, k);
                    });
                }
                // recompute P, then dV, dK and dQ, a tile of keys at a time
                const int64_t begin = a.segment(b, q0) / tile * tile;
                for (int64_t k0 = begin; k0 < (a.causal ? q0 + nq : T); k0 += tile) {
                    const Pair p{q0, nq, k0, std::min(tile, T - k0), a, b};
                    scores(p, a.D, m.q, D, m.kt + k0 * D, tile, m.s, tile);
                    scores(p, a.D, m.dout, D, m.vt + k0 * D, tile, m.ds, tile);
                    weights_back(p, tile, lse + (b * a.H + h) * T + q0, m);
                    columns_product(p, m.s, tile, m.dout, D, m.dv + k0 * D);
                    columns_product(p, m.ds, tile, m.q, D, m.dk + k0 * D);
                    rows_product(p, m.ds, tile, m.k + k0 * D, D, m.dq, k0 > begin);
                }
                unpack(nq, a.D, D, m.dq, dqkv + queries, plan.ld);
            }
        }
        unpack(T, a.D, D, m.dk, dqkv + keys, plan.ld);
        unpack(T, a.D, D, m.dv, dqkv + values, plan.ld);
    }
}

}  // namespace gt::cpu
