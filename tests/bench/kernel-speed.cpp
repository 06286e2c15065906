// bench-kernels — GFLOP/s or GB/s of every CPU kernel at the shapes of training, best of many calls.
//
//   bench-kernels [threads] [name]     only kernels whose name contains `name`
//
// The first line is the machine's peak: fused multiply-adds in registers. Time is the CPU time of the
// slowest thread, which depends less on other load.
#include "ggml-train/cpu/kernels.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using namespace gt::cpu;

static int         n_threads = 2;
static std::string only;

using Clock = std::chrono::steady_clock;

static double thread_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

// Seconds of the fastest of many rounds, each thread running f once per round.
static double best_time(const std::function<void(Part)> & f) {
    std::atomic<int>  arrived{0}, turn{0};
    std::atomic<bool> done{false};
    const auto        meet = [&] {
        const int now = turn;
        if (++arrived == n_threads) {
            arrived = 0;
            ++turn;
        } else {
            while (turn == now) {
            }
        }
    };
    double              best = 1e9;
    std::vector<double> spent(n_threads);
    const auto          work = [&](int i) {
        const auto start = Clock::now();
        for (int round = 0; !done; ++round) {
            meet();
            const double before = thread_seconds();
            f({i, n_threads});
            spent[i] = thread_seconds() - before;
            meet();
            if (i == 0) {
                best = std::min(best, *std::max_element(spent.begin(), spent.end()));
                done = round >= 4 && Clock::now() - start > std::chrono::milliseconds(250);
            }
            meet();
        }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < n_threads; ++i) {
        others.emplace_back(work, i);
    }
    work(0);
    for (std::thread & t : others) {
        t.join();
    }
    return best;
}

static void report(
    const std::string & name, double work, const char * unit, const std::function<void(Part)> & f
) {
    if (name.find(only) != std::string::npos) {
        const double s = best_time(f);
        std::printf("%-44s %9.3f ms %8.1f %s\n", name.c_str(), s * 1e3, work / s * 1e-9, unit);
        std::fflush(stdout);
    }
}

static std::vector<float> floats(int64_t n) {
    std::vector<float> x(n);
    for (int64_t i = 0; i < n; ++i) {
        x[i] = (float) (i * 7919 % 2003) / 1001.0f - 1.0f;
    }
    return x;
}

static void bench_peak() {
#ifdef __AVX512F__
    constexpr int kLanes = 16;
#else
    constexpr int kLanes = 8;
#endif
    report("peak", 2e6 * 12 * kLanes * n_threads, "GFLOP/s", [](Part) {
        typedef float Wide __attribute__((vector_size(kLanes * 4)));
        Wide          acc[12], a = Wide{} + 0.999f, b = Wide{} + 0.001f;
        for (int u = 0; u < 12; ++u) {
            acc[u] = Wide{} + (float) u;
        }
        for (int i = 0; i < 1000000; ++i) {
            for (int u = 0; u < 12; ++u) {
                acc[u] = acc[u] * a + b;
            }
        }
        volatile float keep = 0;
        for (int u = 0; u < 12; ++u) {
            keep = keep + acc[u][0];
        }
    });
}

// A linear layer of K inputs and N outputs on M tokens: forward, input gradient, weight gradient.
static void bench_linear(const char * name, int64_t M, int64_t K, int64_t N) {
    const std::vector<float> x = floats(M * K), w = floats(N * K), bias = floats(N),
                             dy = floats(M * N);
    std::vector<float> y(M * N), dx(M * K), dw(N * K);
    char               shape[96];
    const double       work  = 2.0 * M * N * K;
    const auto         label = [&](const char * what) {
        std::snprintf(
                    shape, sizeof(shape), "gemm %s %s %ldx%ldx%ld", name, what, (long) M, (long) K, (long) N
                );
        return std::string(shape);
    };
    report(label("forward"), work, "GFLOP/s", [&](Part part) {
        gemm(
            part, {.tb   = true,
                   .M    = M,
                   .N    = N,
                   .K    = K,
                   .A    = x.data(),
                   .lda  = K,
                   .B    = w.data(),
                   .ldb  = K,
                   .C    = y.data(),
                   .ldc  = N,
                   .bias = bias.data()}
        );
    });
    report(label("dx"), work, "GFLOP/s", [&](Part part) {
        gemm(
            part, {.M   = M,
                   .N   = K,
                   .K   = N,
                   .A   = dy.data(),
                   .lda = N,
                   .B   = w.data(),
                   .ldb = K,
                   .C   = dx.data(),
                   .ldc = K}
        );
    });
    report(label("dw"), work, "GFLOP/s", [&](Part part) {
        gemm(
            part, {.ta  = true,
                   .M   = N,
                   .N   = K,
                   .K   = M,
                   .A   = dy.data(),
                   .lda = N,
                   .B   = x.data(),
                   .ldb = K,
                   .C   = dw.data(),
                   .ldc = K}
        );
    });
}

// Work counts unmasked pairs only: half of them with a causal mask. Backward has five products, forward
// two.
static void bench_attention(const char * name, const Attention & a) {
    const int64_t            n_o = a.B * a.T * a.H * a.D;
    const std::vector<float> qkv = floats(a.B * a.T * (a.H + 2 * a.Hkv) * a.D), d_o = floats(n_o);
    std::vector<float>       o(n_o), lse(a.B * a.H * a.T), dqkv(qkv.size());
    const double             pairs = a.causal ? a.T * (a.T + 1) / 2.0 : (double) a.T * a.T;
    const double             work  = 2.0 * a.B * a.H * a.D * pairs;
    report(std::string("attention ") + name, 2 * work, "GFLOP/s", [&](Part part) {
        attention(part, a, qkv.data(), o.data(), lse.data());
    });
    report(std::string("attention_back ") + name, 5 * work, "GFLOP/s", [&](Part part) {
        attention_back(part, a, qkv.data(), o.data(), lse.data(), d_o.data(), dqkv.data());
    });
}

// GB/s counts every array once.
static void bench_rows(int64_t rows, int64_t C) {
    const std::vector<float> x = floats(rows * C), dy = floats(rows * C), w = floats(C),
                             b = floats(C);
    std::vector<float> y(rows * C), dx(rows * C), stats(rows * 2), dw(C), db(C);
    const std::string  shape = " " + std::to_string(rows) + "x" + std::to_string(C);
    const double       bytes = 4.0 * rows * C;
    report("layer_norm" + shape, 2 * bytes, "GB/s", [&](Part part) {
        layer_norm(part, rows, C, 1e-5f, x.data(), w.data(), b.data(), y.data(), stats.data());
    });
    report("rms_norm" + shape, 2 * bytes, "GB/s", [&](Part part) {
        rms_norm(part, rows, C, 1e-5f, x.data(), w.data(), y.data(), stats.data());
    });
    report("layer_norm_back" + shape, 4 * bytes, "GB/s", [&](Part part) {
        layer_norm_back(
            part, rows, C, dy.data(), x.data(), w.data(), stats.data(), dx.data(), dx.data()
        );
    });
    report("norm_back_params" + shape, 2 * bytes, "GB/s", [&](Part part) {
        norm_back_params(
            part, rows, C, dy.data(), x.data(), stats.data(), 0.0f, dw.data(), db.data()
        );
    });
    report("sum_rows" + shape, bytes, "GB/s", [&](Part part) {
        sum_rows(part, rows, C, dy.data(), C, 0.0f, db.data());
    });
}

static void bench_elements(int64_t n) {
    const std::vector<float> x = floats(n), dy = floats(n);
    std::vector<float>       y(n), z(n);
    const std::string        shape = " " + std::to_string(n);
    for (const Gelu kind : {Gelu::tanh, Gelu::erf}) {
        const std::string name = kind == Gelu::tanh ? " tanh" : " erf";
        report("gelu" + name + shape, 8.0 * n, "GB/s", [&](Part part) {
            gelu(part, n, kind, x.data(), y.data());
        });
        report("gelu_back" + name + shape, 12.0 * n, "GB/s", [&](Part part) {
            gelu_back(part, n, kind, x.data(), dy.data(), y.data());
        });
    }
    report("swiglu" + shape, 12.0 * n, "GB/s", [&](Part part) {
        swiglu(part, n, x.data(), dy.data(), y.data());
    });
    report("swiglu_back" + shape, 20.0 * n, "GB/s", [&](Part part) {
        swiglu_back(part, n, x.data(), dy.data(), dy.data(), y.data(), z.data());
    });
}

static void bench_tokens(int64_t B, int64_t T, int64_t C, int64_t V, int64_t ld) {
    std::vector<float> table = floats(V * C), x(B * T * C), logits = floats(B * T * ld),
                       loss(B * T);
    std::vector<int32_t> ids(B * T);
    for (int64_t i = 0; i < B * T; ++i) {
        ids[i] = (int32_t) (i * 7919 % V);
    }
    const std::string shape = " " + std::to_string(B * T) + "x" + std::to_string(V);
    report("embedding" + shape, 8.0 * B * T * C, "GB/s", [&](Part part) {
        embedding(part, B * T, T, C, ids.data(), table.data(), nullptr, x.data());
    });
    report("embedding_back" + shape, 12.0 * B * T * C, "GB/s", [&](Part part) {
        embedding_back(part, B * T, V, C, ids.data(), x.data(), 1.0f, table.data());
    });
    const std::vector<float> divisors(32, 10.0f);
    report("rope" + shape, 8.0 * B * T * C, "GB/s", [&](Part part) {
        rope(part, {B, T, C / 64, C / 64, 64, divisors.data()}, false, x.data(), x.data());
    });
    report("cross_entropy" + shape, 8.0 * B * T * ld, "GB/s", [&](Part part) {
        cross_entropy(part, B * T, V, ld, logits.data(), ids.data(), 0.0f, 1.0f, true, loss.data());
    });
}

int main(int argc, char ** argv) {
    n_threads = argc > 1 ? std::atoi(argv[1]) : 2;
    only      = argc > 2 ? argv[2] : "";
    bench_peak();
    bench_linear("gpt2 qkv", 256, 768, 2304);
    bench_linear("gpt2 out", 256, 768, 768);
    bench_linear("gpt2 up", 256, 768, 3072);
    bench_linear("gpt2 down", 256, 3072, 768);
    bench_linear("gpt2 head", 256, 768, 50304);
    bench_linear("gpt2 up", 1024, 768, 3072);
    bench_linear("gpt2 down", 1024, 3072, 768);
    bench_linear("byte up", 2048, 384, 1536);
    bench_linear("byte out", 2048, 384, 384);
    bench_linear("vit up", 2080, 192, 768);
    bench_linear("vit out", 2080, 192, 192);
    bench_attention("gpt2 B4 T64", {.B = 4, .T = 64, .H = 12, .Hkv = 12, .D = 64});
    bench_attention("gpt2 B4 T256", {.B = 4, .T = 256, .H = 12, .Hkv = 12, .D = 64});
    bench_attention("byte B8 T256", {.B = 8, .T = 256, .H = 6, .Hkv = 6, .D = 64});
    bench_attention("vit B32 T65", {.B = 32, .T = 65, .H = 3, .Hkv = 3, .D = 64, .causal = false});
    bench_attention("B1 T1024", {.B = 1, .T = 1024, .H = 12, .Hkv = 12, .D = 64});
    bench_rows(256, 768);
    bench_rows(1024, 768);
    bench_rows(1024, 3072);
    bench_rows(2080, 192);
    bench_elements(256 * 3072);
    bench_elements(1024 * 3072);
    bench_tokens(4, 256, 768, 50257, 50304);
    return 0;
}
