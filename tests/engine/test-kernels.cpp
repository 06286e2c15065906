// Matrix products, norms and sums of rows against plain loops in double precision, at odd shapes and
// for several numbers of threads. The other kernels: test-elements.cpp, test-attention.cpp.
#include "tests/engine/kernel-checks.h"

using namespace gt::cpu;

TEST_CASE("gemm_matches_plain_loops") {
    struct Shape {
        int64_t M, N, K;
    };
    for (const Shape s : {Shape{1, 1, 1}, {1, 67, 40}, {17, 13, 33}, {40, 67, 17}, {67, 40, 1}}) {
        for (int flags = 0; flags < 32; ++flags) {
            const bool    ta = flags & 1, tb = flags & 2;
            const int64_t lda = (ta ? s.M : s.K) + 3, ldb = (tb ? s.K : s.N) + 1, ldc = s.N + 2;
            const Floats  A    = random_floats(1, (ta ? s.K : s.M) * lda);
            const Floats  B    = random_floats(2, (tb ? s.N : s.K) * ldb);
            const Floats  bias = random_floats(3, s.N), residual = random_floats(4, s.M * ldc);
            const Floats  before = random_floats(5, s.M * ldc);
            const bool    beta = flags & 4, has_bias = flags & 8, has_residual = flags & 16;

            Doubles want(s.M * ldc);
            for (int64_t m = 0; m < s.M; ++m) {
                for (int64_t n = 0; n < ldc; ++n) {
                    double & c = want[m * ldc + n];
                    c          = before[m * ldc + n];
                    if (n >= s.N) {
                        continue;  // the gap between rows is unchanged
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
                    gemm(
                        part, {.ta       = ta,
                               .tb       = tb,
                               .M        = s.M,
                               .N        = s.N,
                               .K        = s.K,
                               .A        = A.data(),
                               .lda      = lda,
                               .B        = B.data(),
                               .ldb      = ldb,
                               .C        = C.data(),
                               .ldc      = ldc,
                               .beta     = beta ? 1.0f : 0.0f,
                               .bias     = has_bias ? bias.data() : nullptr,
                               .residual = has_residual ? residual.data() : nullptr}
                    );
                });
                REQUIRE(difference(C, want) < kClose);
            }
        }
    }
}

TEST_CASE("gemm_adds_to_a_residual_in_place") {
    const int64_t M = 17, N = 40, K = 13;
    const Floats  A = random_floats(1, M * K), B = random_floats(2, K * N);
    const Floats  before = random_floats(3, M * N), bias = random_floats(4, N);
    for (const bool has_bias : {false, true}) {
        Doubles want(before.begin(), before.end());
        for (int64_t i = 0; i < M * N; ++i) {
            want[i] += has_bias ? bias[i % N] : 0.0f;
            for (int64_t k = 0; k < K; ++k) {
                want[i] += (double) A[i / N * K + k] * B[k * N + i % N];
            }
        }
        for (const int n_threads : kThreads) {
            Floats C = before;
            run(n_threads, [&](Part part) {
                gemm(
                    part, {.M        = M,
                           .N        = N,
                           .K        = K,
                           .A        = A.data(),
                           .lda      = K,
                           .B        = B.data(),
                           .ldb      = N,
                           .C        = C.data(),
                           .ldc      = N,
                           .bias     = has_bias ? bias.data() : nullptr,
                           .residual = C.data()}
                );
            });
            REQUIRE(difference(C, want) < kClose);
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

                // the reference, in double precision
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

                // the kernels, with several numbers of threads
                for (const int n_threads : kThreads) {
                    Floats got_y = unwritten(rows * C), got_stats = unwritten(rows * 2);
                    Floats got_dx = add, got_dw = dw0, got_db = db0, alone = unwritten(rows * C);
                    run(n_threads, [&](Part part) {
                        rms ? rms_norm(
                                  part, rows, C, eps, x.data(), w.data(), got_y.data(),
                                  got_stats.data()
                              )
                            : layer_norm(
                                  part, rows, C, eps, x.data(), w.data(), b.data(), got_y.data(),
                                  got_stats.data()
                              );
                    });
                    const auto back = rms ? rms_norm_back : layer_norm_back;
                    run(n_threads, [&](Part part) {
                        back(
                            part, rows, C, dy.data(), x.data(), w.data(), got_stats.data(),
                            got_dx.data(), got_dx.data()
                        );
                        back(
                            part, rows, C, dy.data(), x.data(), w.data(), got_stats.data(), nullptr,
                            alone.data()
                        );
                        norm_back_params(
                            part, rows, C, dy.data(), x.data(), got_stats.data(), 1.0f,
                            got_dw.data(), got_db.data()
                        );
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
                        norm_back_params(
                            part, rows, C, dy.data(), x.data(), got_stats.data(), 0.0f,
                            only_dw.data(), nullptr
                        );
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
