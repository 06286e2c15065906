// Activations, rotary positions, embeddings and cross entropy against plain loops in double
// precision, at odd shapes and for several numbers of threads.
#include "tests/engine/kernel-checks.h"

#include <functional>

using namespace gt;
using namespace gt::cpu;

static Doubles map2(const Floats & x, const Floats & d, std::function<double(double, double)> f) {
    Doubles y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
        y[i] = f(x[i], d[i]);
    }
    return y;
}

static double phi(double x) {
    return std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}
static double gelu_erf(double x) {
    return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}
static double gelu_tanh(double x) {
    return x / (1.0 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double gelu_tanh_slope(double x) {
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x),
                 s = 1 / (1 + std::exp(-2 * u));
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
    // below zero results are small: compare relative errors
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
                swiglu_back(
                    part, n, gate.data(), up.data(), gate_in_place.data(), gate_in_place.data(),
                    got_dup.data()
                );
                swiglu_back(
                    part, n, gate.data(), up.data(), up_in_place.data(), got_dgate.data(),
                    up_in_place.data()
                );
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
    for (const int64_t D : {2, 40, 64, 70}) {
        for (const bool neox : {false, true}) {
            const int64_t B = 2, T = 17, n_heads = 5, n_rot = 3, n = B * T * n_heads * D;
            const Floats  x = random_floats(1, n);
            Floats        divisors;
            for (int64_t i = 0; i < D / 2; ++i) {
                divisors.push_back((float) std::pow(10000.0, 2.0 * (double) i / D));
            }
            const int64_t next = neox ? D / 2 : 1;
            Doubles       want(x.begin(), x.end());
            for (int64_t row = 0; row < B * T; ++row) {
                for (int64_t i = 0; i < n_rot * D / 2; ++i) {
                    const int64_t pair = i % (D / 2), head = i / (D / 2);
                    const int64_t p     = (row * n_heads + head) * D + (neox ? pair : 2 * pair);
                    const double  angle = (double) (row % T) / divisors[pair];
                    want[p]        = 1.5 * (x[p] * std::cos(angle) - x[p + next] * std::sin(angle));
                    want[p + next] = 1.5 * (x[p] * std::sin(angle) + x[p + next] * std::cos(angle));
                }
            }
            Rope rope_of{B, T, n_heads, n_rot, D, divisors.data(), 1.5f, neox};
            for (const int n_threads : kThreads) {
                Floats y = unwritten(n);
                run(n_threads, [&](Part part) { rope(part, rope_of, false, x.data(), y.data()); });
                REQUIRE(difference(y, want) < kClose);
                rope_of.scale = 1.0f / 1.5f;
                run(n_threads, [&](Part part) { rope(part, rope_of, true, y.data(), y.data()); });
                REQUIRE(difference(y, Doubles(x.begin(), x.end())) < kClose);
                rope_of.scale = 1.5f;
            }
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
                    embedding(
                        part, n, T, C, ids.data(), table.data(), position.data(), got_x.data()
                    );
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
                    cross_entropy(
                        part, rows, V, ld, got.data(), labels.data(), smoothing, scale, false,
                        loss_only.data()
                    );
                });
                REQUIRE(got == logits);
                run(n_threads, [&](Part part) {
                    cross_entropy(
                        part, rows, V, ld, got.data(), labels.data(), smoothing, scale, true,
                        got_loss.data()
                    );
                });
                REQUIRE(difference(loss_only, loss) < kClose);
                REQUIRE(difference(got_loss, loss) < kClose);
                REQUIRE(difference(got, grad) < kClose);
            }
        }
    }
}

TEST_CASE("cross_entropy_gives_no_weight_to_minus_infinity") {
    const float   inf    = std::numeric_limits<float>::infinity();
    Floats        logits = {0.0f, -inf, -1000.0f, 0.0f};
    const int32_t label  = 0;
    float         loss   = -1.0f;
    cross_entropy({}, 1, 4, 4, logits.data(), &label, 0.0f, 1.0f, true, &loss);
    CHECK(loss == Approx(std::log(2.0)));
    CHECK(logits == Floats{-0.5f, 0.0f, 0.0f, 0.5f});
}

TEST_CASE("cross_entropy_reports_nan") {
    for (int64_t at = 0; at < 20; ++at) {
        Floats logits(20, 1.0f);
        logits[at]          = std::numeric_limits<float>::quiet_NaN();
        const int32_t label = 0;
        float         loss  = 0.0f;
        cross_entropy({}, 1, 20, 20, logits.data(), &label, 0.0f, 1.0f, true, &loss);
        CHECK(std::isnan(loss));
    }
}
