// The tiled attention kernels against the textbook formula in double precision.
#include "tests/engine/kernel-checks.h"

using namespace gt::cpu;

struct Reference {
    Doubles o, lse, dqkv;
};

// Row i of query head h: scores, weights, output, then all gradients.
static Reference plain_attention(const Attention & a, const Floats & qkv, const Floats & d_o) {
    const int64_t ld = (a.H + 2 * a.Hkv) * a.D, ldo = a.H * a.D;
    const double  scale = 1.0 / std::sqrt((double) a.D);
    Reference     ref{Doubles(a.B * a.T * ldo), Doubles(a.B * a.H * a.T), Doubles(qkv.size())};
    for (int64_t row = 0; row < a.B * a.H * a.T; ++row) {
        const int64_t b = row / (a.H * a.T), h = row / a.T % a.H, i = row % a.T;
        const int64_t hkv = h / (a.H / a.Hkv), n = a.causal ? i + 1 : a.T;
        const int64_t from = a.segment(b, i);
        const auto    at = [&](int64_t t, int64_t head) { return (b * a.T + t) * ld + head * a.D; };
        const int64_t q = at(i, h), out = (b * a.T + i) * ldo + h * a.D;
        Doubles       p(n), dp(n);
        double        total = 0, delta = 0;
        for (int64_t j = from; j < n; ++j) {
            const int64_t k = at(j, a.H + hkv);
            for (int64_t d = 0; d < a.D; ++d) {
                p[j] += scale * qkv[q + d] * qkv[k + d];
            }
            total += std::exp(p[j]);
        }
        ref.lse[row] = std::log(total);
        for (int64_t j = from; j < n; ++j) {
            const int64_t v = at(j, a.H + a.Hkv + hkv);
            p[j]            = std::exp(p[j]) / total;
            for (int64_t d = 0; d < a.D; ++d) {
                ref.o[out + d] += p[j] * qkv[v + d];
                ref.dqkv[v + d] += p[j] * d_o[out + d];
                dp[j] += (double) d_o[out + d] * qkv[v + d];
            }
            delta += p[j] * dp[j];
        }
        for (int64_t j = from; j < n; ++j) {
            const int64_t k  = at(j, a.H + hkv);
            const double  ds = p[j] * (dp[j] - delta) * scale;
            for (int64_t d = 0; d < a.D; ++d) {
                ref.dqkv[q + d] += ds * qkv[k + d];
                ref.dqkv[k + d] += ds * qkv[q + d];
            }
        }
    }
    return ref;
}

static void check(const Attention & a, float scale) {
    CAPTURE(a.B, a.T, a.H, a.Hkv, a.D, a.causal, scale);
    const int64_t   n_o = a.B * a.T * a.H * a.D;
    const Floats    qkv = random_floats(1, a.B * a.T * (a.H + 2 * a.Hkv) * a.D, scale);
    const Floats    d_o = random_floats(2, n_o);
    const Reference ref = plain_attention(a, qkv, d_o);
    for (const int n_threads : kThreads) {
        Floats o = unwritten(n_o), lse = unwritten(a.B * a.H * a.T), dqkv = unwritten(qkv.size());
        run(n_threads, [&](Part part) { attention(part, a, qkv.data(), o.data(), lse.data()); });
        run(n_threads, [&](Part part) {
            attention_back(part, a, qkv.data(), o.data(), lse.data(), d_o.data(), dqkv.data());
        });
        // large scores cost digits before they are exponentiated
        const double close = scale > 2.0f ? 5e-5 : kClose;
        REQUIRE(difference(o, ref.o) < close);
        REQUIRE(difference(lse, ref.lse) < close);
        REQUIRE(difference(dqkv, ref.dqkv) < close);
    }
}

TEST_CASE("attention_matches_the_textbook_at_odd_sizes") {
    for (const bool causal : {true, false}) {
        for (const int64_t T : {1, 2, 17, 65, 97}) {
            for (const int64_t D : {2, 40, 64}) {
                check({.B = 2, .T = T, .H = 3, .Hkv = 3, .D = D, .causal = causal}, 1.0f);
            }
        }
    }
}

TEST_CASE("attention_matches_the_textbook_over_many_tiles") {
    for (const bool causal : {true, false}) {
        check({.B = 1, .T = 256, .H = 2, .Hkv = 2, .D = 64, .causal = causal}, 1.0f);
        check({.B = 1, .T = 301, .H = 1, .Hkv = 1, .D = 24, .causal = causal}, 1.0f);
        check({.B = 1, .T = 130, .H = 1, .Hkv = 1, .D = 128, .causal = causal}, 1.0f);
    }
}

TEST_CASE("attention_shares_key_heads_between_query_heads") {
    for (const bool causal : {true, false}) {
        check({.B = 2, .T = 33, .H = 6, .Hkv = 2, .D = 40, .causal = causal}, 1.0f);
        check({.B = 1, .T = 100, .H = 4, .Hkv = 1, .D = 16, .causal = causal}, 1.0f);
    }
}

TEST_CASE("attention_survives_large_scores") {
    check({.B = 1, .T = 150, .H = 2, .Hkv = 2, .D = 64, .causal = true}, 12.0f);
    check({.B = 1, .T = 150, .H = 2, .Hkv = 2, .D = 64, .causal = false}, 12.0f);
}

TEST_CASE("attention_stays_within_segments") {
    for (const int64_t T : {17, 97, 301}) {
        for (const int32_t longest : {1, 5, 70, 260}) {
            // two sequences with segments of different lengths
            std::vector<int32_t> places(2 * T);
            for (int64_t i = 0; i < 2 * T; ++i) {
                const bool begins = i % T == 0 || places[i - 1] + 1 >= longest - i / T;
                places[i]         = begins ? 0 : places[i - 1] + 1;
            }
            check(
                {.B         = 2,
                 .T         = T,
                 .H         = 2,
                 .Hkv       = 1,
                 .D         = 24,
                 .causal    = true,
                 .positions = places.data()},
                1.0f
            );
        }
    }
}
