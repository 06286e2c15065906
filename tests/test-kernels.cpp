// Every CPU kernel against plain loops in double precision, at odd shapes and for several numbers
// of threads. Outputs start as NaN, so an element that no thread writes fails the comparison.
#include "ggml-train/base.h"
#include "ggml-train/cpu/kernels.h"
#include "tests/catch.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

using namespace gt;
using namespace gt::cpu;

using Floats  = std::vector<float>;
using Doubles = std::vector<double>;

static const int kThreads[] = {1, 2, 3, 5};

static Floats random_floats(uint64_t seed, int64_t n, float scale = 1.0f) {
    Floats x(n);
    for (int64_t i = 0; i < n; ++i) {
        x[i] = (random_uniform(random_bits(seed, i)) * 2.0f - 1.0f) * scale;
    }
    return x;
}

static Floats unwritten(int64_t n) { return Floats(n, std::numeric_limits<float>::quiet_NaN()); }

template <class F>
static void run(int n_threads, F f) {
    for (int i = 0; i < n_threads; ++i) {
        f(Part{i, n_threads});
    }
}

// The largest difference, as a part of the largest reference; NaN counts as infinite.
static double difference(const Floats & got, const Doubles & want) {
    REQUIRE(got.size() == want.size());
    double worst = 0, largest = 1e-30;
    for (size_t i = 0; i < got.size(); ++i) {
        const double d = std::fabs(got[i] - want[i]);
        worst          = d <= worst ? worst : std::isnan(d) ? INFINITY : d;
        largest        = std::max(largest, std::fabs(want[i]));
    }
    return worst / largest;
}

constexpr double kClose = 3e-6;

TEST_CASE("gemm_matches_plain_loops") {
    struct Shape {
        int64_t M, N, K;
    };
    for (const Shape s : {Shape{1, 1, 1}, {1, 67, 40}, {17, 13, 33}, {40, 67, 17}, {67, 40, 1}}) {
        for (int flags = 0; flags < 32; ++flags) {
            const bool    ta = flags & 1, tb = flags & 2;
            const int64_t lda = (ta ? s.M : s.K) + 3, ldb = (tb ? s.K : s.N) + 1, ldc = s.N + 2;
            const Floats  A = random_floats(1, (ta ? s.K : s.M) * lda);
            const Floats  B = random_floats(2, (tb ? s.N : s.K) * ldb);
            const Floats  bias = random_floats(3, s.N), residual = random_floats(4, s.M * ldc);
            const Floats  before = random_floats(5, s.M * ldc);
            const bool    beta = flags & 4, has_bias = flags & 8, has_residual = flags & 16;

            Doubles want(s.M * ldc);
            for (int64_t m = 0; m < s.M; ++m) {
                for (int64_t n = 0; n < ldc; ++n) {
                    double & c = want[m * ldc + n];
                    c          = before[m * ldc + n];
                    if (n >= s.N) {
                        continue;  // the gap between rows stays as it was
                    }
                    c = (beta ? c : 0.0) + (has_bias ? bias[n] : 0.0) +
                        (has_residual ? residual[m * ldc + n] : 0.0);
                    for (int64_t k = 0; k < s.K; ++k) {
                        c += (double) A[ta ? k * lda + m : m * lda + k] *
                             B[tb ? n * ldb + k : k * ldb + n];
                    }
                }
            }
            for (const int n_threads : kThreads) {
                Floats C = before;
                for (int64_t m = 0; m < s.M && !beta; ++m) {
                    std::fill_n(C.data() + m * ldc, s.N, std::numeric_limits<float>::quiet_NaN());
                }
                run(n_threads, [&](Part part) {
                    gemm(part, {.ta = ta, .tb = tb, .M = s.M, .N = s.N, .K = s.K, .A = A.data(),
                                .lda = lda, .B = B.data(), .ldb = ldb, .C = C.data(), .ldc = ldc,
                                .beta = beta ? 1.0f : 0.0f, .bias = has_bias ? bias.data() : nullptr,
                                .residual = has_residual ? residual.data() : nullptr});
                });
                REQUIRE(difference(C, want) < kClose);
            }
        }
    }
}

TEST_CASE("norms_and_their_gradients_match_plain_loops") {
    const float eps = 1e-5f;
    for (const int64_t rows : {1, 5, 17}) {
        for (const int64_t C : {1, 13, 40, 64, 770}) {
            for (const bool rms : {false, true}) {
                Floats x = random_floats(1, rows * C, 2.0f);
                for (float & v : x) {
                    v += 0.7f;
                }
                const Floats w = random_floats(2, C), b = random_floats(3, C);
                const Floats dy = random_floats(4, rows * C), add = random_floats(5, rows * C);
                const Floats dw0 = random_floats(6, C), db0 = random_floats(7, C);

                Doubles y(rows * C), stats(rows * 2), dx(rows * C), dw(C), db(C);
                for (int64_t c = 0; c < C; ++c) {
                    dw[c] = dw0[c];
                    db[c] = db0[c];
                }
                for (int64_t r = 0; r < rows; ++r) {
                    double mean = 0, var = 0, g_mean = 0, gn_mean = 0;
                    for (int64_t c = 0; c < C && !rms; ++c) {
                        mean += x[r * C + c] / (double) C;
                    }
                    for (int64_t c = 0; c < C; ++c) {
                        var += (x[r * C + c] - mean) * (x[r * C + c] - mean) / C;
                    }
                    const double inv = 1.0 / std::sqrt(var + eps);
                    const auto   n   = [&](int64_t c) { return (x[r * C + c] - mean) * inv; };
                    for (int64_t c = 0; c < C; ++c) {
                        const double g = (double) dy[r * C + c] * w[c];
                        y[r * C + c]   = n(c) * w[c] + (rms ? 0.0 : b[c]);
                        g_mean += rms ? 0.0 : g / C;
                        gn_mean += g * n(c) / C;
                        dw[c] += dy[r * C + c] * n(c);
                        db[c] += dy[r * C + c];
                    }
                    for (int64_t c = 0; c < C; ++c) {
                        const double g = (double) dy[r * C + c] * w[c];
                        dx[r * C + c]  = add[r * C + c] + inv * (g - g_mean - n(c) * gn_mean);
                    }
                    stats[2 * r]     = mean;
                    stats[2 * r + 1] = inv;
                }

                for (const int n_threads : kThreads) {
                    Floats got_y = unwritten(rows * C), got_stats = unwritten(rows * 2);
                    Floats got_dx = add, got_dw = dw0, got_db = db0, alone = unwritten(rows * C);
                    run(n_threads, [&](Part part) {
                        rms ? rms_norm(part, rows, C, eps, x.data(), w.data(), got_y.data(),
                                       got_stats.data())
                            : layer_norm(part, rows, C, eps, x.data(), w.data(), b.data(),
                                         got_y.data(), got_stats.data());
                    });
                    const auto back = rms ? rms_norm_back : layer_norm_back;
                    run(n_threads, [&](Part part) {
                        back(part, rows, C, dy.data(), x.data(), w.data(), got_stats.data(),
                             got_dx.data(), got_dx.data());
                        back(part, rows, C, dy.data(), x.data(), w.data(), got_stats.data(), nullptr,
                             alone.data());
                        norm_back_params(part, rows, C, dy.data(), x.data(), got_stats.data(), 1.0f,
                                         got_dw.data(), got_db.data());
                    });
                    for (int64_t i = 0; i < rows * C; ++i) {
                        alone[i] += add[i];
                    }
                    // at C = 1 the variance is zero and its inverse large: looser
                    const double close = C == 1 ? 1e-3 : 1e-5;
                    REQUIRE(difference(got_y, y) < close);
                    REQUIRE(difference(got_stats, stats) < kClose);
                    REQUIRE(difference(got_dx, dx) < close);
                    REQUIRE(difference(alone, dx) < close);
                    REQUIRE(difference(got_dw, dw) < close);
                    REQUIRE(difference(got_db, db) < close);

                    Floats only_dw = unwritten(C);
                    run(n_threads, [&](Part part) {
                        norm_back_params(part, rows, C, dy.data(), x.data(), got_stats.data(), 0.0f,
                                         only_dw.data(), nullptr);
                    });
                    for (int64_t c = 0; c < C; ++c) {
                        REQUIRE(only_dw[c] + dw0[c] == Approx(dw[c]).margin(1e-4));
                    }
                }
            }
        }
    }
}

TEST_CASE("sum_rows_adds_every_row_once") {
    for (const int64_t rows : {1, 8, 29}) {
        for (const int64_t C : {1, 13, 67, 300}) {
            const int64_t ld = C + 5;
            const Floats  x = random_floats(1, rows * ld), before = random_floats(2, C);
            for (const float beta : {0.0f, 1.0f, 0.5f}) {
                Doubles want(C);
                for (int64_t c = 0; c < C; ++c) {
                    want[c] = beta * before[c];
                    for (int64_t r = 0; r < rows; ++r) {
                        want[c] += x[r * ld + c];
                    }
                }
                for (const int n_threads : kThreads) {
                    Floats out = beta == 0.0f ? unwritten(C) : before;
                    run(n_threads, [&](Part part) {
                        sum_rows(part, rows, C, x.data(), ld, beta, out.data());
                    });
                    REQUIRE(difference(out, want) < kClose);
                }
            }
        }
    }
}

static Doubles map2(const Floats & x, const Floats & d, std::function<double(double, double)> f) {
    Doubles y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
        y[i] = f(x[i], d[i]);
    }
    return y;
}

static double phi(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
static double gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
static double gelu_tanh(double x) {
    return x / (1.0 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double gelu_tanh_slope(double x) {
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), s = 1 / (1 + std::exp(-2 * u));
    return s + x * 2 * s * (1 - s) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

TEST_CASE("gelu_and_its_gradient_match_libm") {
    for (const int64_t n : {1, 13, 4099}) {
        for (const float scale : {1.0f, 12.0f, 200.0f}) {
            const Floats  x = random_floats(1, n, scale), dy = random_floats(2, n);
            const Doubles erf_y  = map2(x, dy, [](double v, double) { return gelu_erf(v); });
            const Doubles tanh_y = map2(x, dy, [](double v, double) { return gelu_tanh(v); });
            const Doubles erf_d  = map2(x, dy, [](double v, double d) {
                return d * (0.5 * std::erfc(-v / std::sqrt(2.0)) + v * phi(v));
            });
            const Doubles tanh_d =
                map2(x, dy, [](double v, double d) { return d * gelu_tanh_slope(v); });
            for (const int n_threads : kThreads) {
                for (const Gelu kind : {Gelu::erf, Gelu::tanh}) {
                    Floats y = unwritten(n), dx = dy;
                    run(n_threads, [&](Part part) {
                        gelu(part, n, kind, x.data(), y.data());
                        gelu_back(part, n, kind, x.data(), dx.data(), dx.data());
                    });
                    REQUIRE(difference(y, kind == Gelu::erf ? erf_y : tanh_y) < kClose);
                    REQUIRE(difference(dx, kind == Gelu::erf ? erf_d : tanh_d) < kClose);
                }
            }
        }
    }
}

TEST_CASE("gelu_keeps_small_values_and_nan") {
    // left of zero the result is small: it must be right in itself, not only beside large ones
    Floats x, y(200);
    for (int i = 0; i < 200; ++i) {
        x.push_back(-5.0f + 0.05f * i);
    }
    gelu({}, 200, Gelu::erf, x.data(), y.data());
    for (int i = 0; i < 200; ++i) {
        CHECK(y[i] == Approx(gelu_erf(x[i])).epsilon(4e-6).margin(1e-9));
    }
    gelu({}, 200, Gelu::tanh, x.data(), y.data());
    for (int i = 0; i < 200; ++i) {
        CHECK(y[i] == Approx(gelu_tanh(x[i])).epsilon(4e-6).margin(1e-9));
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const Gelu kind : {Gelu::erf, Gelu::tanh}) {
        gelu({}, 1, kind, &nan, y.data());
        CHECK(std::isnan(y[0]));
    }
}

TEST_CASE("swiglu_and_its_gradients_match_libm") {
    for (const int64_t n : {1, 13, 1030}) {
        const Floats gate = random_floats(1, n, 20.0f), up = random_floats(2, n);
        const Floats dy = random_floats(3, n);
        Doubles      y(n), dgate(n), dup(n);
        for (int64_t i = 0; i < n; ++i) {
            const double g = gate[i], s = 1 / (1 + std::exp(-g));
            y[i]     = g * s * up[i];
            dgate[i] = (double) dy[i] * up[i] * (s + g * s * (1 - s));
            dup[i]   = dy[i] * g * s;
        }
        for (const int n_threads : kThreads) {
            Floats got_y = unwritten(n), gate_in_place = dy, got_dup = unwritten(n);
            Floats got_dgate = unwritten(n), up_in_place = dy;
            run(n_threads, [&](Part part) {
                swiglu(part, n, gate.data(), up.data(), got_y.data());
                swiglu_back(part, n, gate.data(), up.data(), gate_in_place.data(),
                            gate_in_place.data(), got_dup.data());
                swiglu_back(part, n, gate.data(), up.data(), up_in_place.data(), got_dgate.data(),
                            up_in_place.data());
            });
            REQUIRE(difference(got_y, y) < kClose);
            REQUIRE(difference(gate_in_place, dgate) < kClose);
            REQUIRE(difference(got_dgate, dgate) < kClose);
            REQUIRE(difference(got_dup, dup) < kClose);
            REQUIRE(difference(up_in_place, dup) < kClose);
        }
    }
}

TEST_CASE("rope_rotates_pairs_and_back") {
    for (const int64_t D : {2, 40, 64}) {
        const int64_t B = 2, T = 17, n_heads = 5, n_rot = 3, n = B * T * n_heads * D;
        const Floats  x = random_floats(1, n);
        Doubles       want(x.begin(), x.end());
        for (int64_t row = 0; row < B * T; ++row) {
            for (int64_t h = 0; h < n_rot; ++h) {
                for (int64_t i = 0; i < D; i += 2) {
                    const int64_t at    = (row * n_heads + h) * D + i;
                    const double  angle = (double) (row % T) * std::pow(10000.0, -(double) i / D);
                    want[at]     = x[at] * std::cos(angle) - x[at + 1] * std::sin(angle);
                    want[at + 1] = x[at] * std::sin(angle) + x[at + 1] * std::cos(angle);
                }
            }
        }
        for (const int n_threads : kThreads) {
            Floats y = unwritten(n);
            run(n_threads, [&](Part part) {
                rope(part, B, T, n_heads, n_rot, D, 10000.0f, false, x.data(), y.data());
            });
            REQUIRE(difference(y, want) < kClose);
            run(n_threads, [&](Part part) {
                rope(part, B, T, n_heads, n_rot, D, 10000.0f, true, y.data(), y.data());
            });
            REQUIRE(difference(y, Doubles(x.begin(), x.end())) < kClose);
        }
    }
}

TEST_CASE("embedding_and_its_gradients_match_plain_loops") {
    const int64_t B = 3, T = 17, V = 11;
    for (const int64_t C : {1, 13, 70}) {
        const int64_t        n = B * T;
        std::vector<int32_t> ids(n);
        for (int64_t i = 0; i < n; ++i) {
            ids[i] = (int32_t) (random_bits(1, i) % V);
        }
        const Floats table = random_floats(2, V * C), position = random_floats(3, T * C);
        const Floats dx = random_floats(4, n * C);
        for (const float beta : {0.0f, 1.0f, 0.5f}) {
            Doubles x(n * C), plain(n * C), d_table(V * C), d_position(T * C);
            for (int64_t i = 0; i < V * C; ++i) {
                d_table[i] = beta * table[i];
            }
            for (int64_t i = 0; i < T * C; ++i) {
                d_position[i] = beta * position[i];
            }
            for (int64_t i = 0; i < n; ++i) {
                for (int64_t c = 0; c < C; ++c) {
                    plain[i * C + c] = table[ids[i] * C + c];
                    x[i * C + c]     = plain[i * C + c] + position[i % T * C + c];
                    d_table[ids[i] * C + c] += dx[i * C + c];
                    d_position[i % T * C + c] += dx[i * C + c];
                }
            }
            for (const int n_threads : kThreads) {
                Floats got_x = unwritten(n * C), got_plain = unwritten(n * C);
                Floats got_table    = beta == 0.0f ? unwritten(V * C) : table;
                Floats got_position = beta == 0.0f ? unwritten(T * C) : position;
                run(n_threads, [&](Part part) {
                    embedding(part, n, T, C, ids.data(), table.data(), position.data(), got_x.data());
                    embedding(part, n, T, C, ids.data(), table.data(), nullptr, got_plain.data());
                    embedding_back(part, n, V, C, ids.data(), dx.data(), beta, got_table.data());
                    position_back(part, B, T, C, dx.data(), beta, got_position.data());
                });
                REQUIRE(difference(got_x, x) < kClose);
                REQUIRE(difference(got_plain, plain) < kClose);
                REQUIRE(difference(got_table, d_table) < kClose);
                REQUIRE(difference(got_position, d_position) < kClose);
            }
        }
    }
}

TEST_CASE("cross_entropy_and_its_gradient_match_plain_loops") {
    for (const int64_t V : {1, 10, 67, 300}) {
        const int64_t        rows = 7, ld = V + 5;
        const Floats         logits = random_floats(1, rows * ld, 30.0f);
        std::vector<int32_t> labels(rows);
        for (int64_t r = 0; r < rows; ++r) {
            labels[r] = r == 3 ? -1 : (int32_t) (random_bits(2, r) % V);
        }
        for (const float smoothing : {0.0f, 0.1f}) {
            const float scale = 0.25f;
            Doubles     loss(rows), grad(rows * ld);
            for (int64_t r = 0; r < rows; ++r) {
                if (labels[r] < 0) {
                    continue;
                }
                double total = 0;
                for (int64_t v = 0; v < V; ++v) {
                    total += std::exp((double) logits[r * ld + v]);
                }
                for (int64_t v = 0; v < V; ++v) {
                    const double log_p  = logits[r * ld + v] - std::log(total);
                    const double target = (v == labels[r] ? 1.0 - smoothing : 0.0) + smoothing / V;
                    loss[r] -= target * log_p;
                    grad[r * ld + v] = scale * (std::exp(log_p) - target);
                }
            }
            for (const int n_threads : kThreads) {
                Floats got = logits, got_loss = unwritten(rows), loss_only = unwritten(rows);
                run(n_threads, [&](Part part) {
                    cross_entropy(part, rows, V, ld, got.data(), labels.data(), smoothing, scale,
                                  false, loss_only.data());
                });
                REQUIRE(got == logits);
                run(n_threads, [&](Part part) {
                    cross_entropy(part, rows, V, ld, got.data(), labels.data(), smoothing, scale,
                                  true, got_loss.data());
                });
                REQUIRE(difference(loss_only, loss) < kClose);
                REQUIRE(difference(got_loss, loss) < kClose);
                REQUIRE(difference(got, grad) < kClose);
            }
        }
    }
}
