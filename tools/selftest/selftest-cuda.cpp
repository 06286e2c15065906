#include "tools/selftest/selftest-cuda.h"

#include <cmath>
#include <cstring>

namespace gt {

using cpu::Part;

void SelftestTable::within(
    const std::string &         name,
    const std::vector<float> &  got,
    const std::vector<float> &  want,
    double                      limit,
    const std::vector<double> & more
) {
    double error = got.size() == want.size() ? 0.0 : INFINITY, largest = 1e-30;
    for (const float w : want) {
        largest = std::max(largest, std::fabs(static_cast<double>(w)));
    }
    for (size_t i = 0; i < want.size() && i < got.size(); ++i) {
        const double d = std::fabs(static_cast<double>(got[i]) - want[i]);
        const double e = more.empty() ? d : std::max(0.0, d - more[i]);
        error          = !std::isfinite(d) ? INFINITY : std::max(error, e);  // NaN counts
    }
    rows.push_back({name, false, error / largest, error / largest <= limit});
}

BothTypes::BothTypes(const std::vector<float> & x)
    : values(selftest_widened(selftest_rounded(x))), f32(values), bf16(selftest_rounded(x)) {}

void SelftestTable::rounds(const std::string & name, const BothResults & results) {
    same(name + " as bf16", results.bf16.get(), selftest_rounded(results.f32.get()));
}

void SelftestTable::add_same(
    const std::string & name, bool sizes, const void * got, const void * want, size_t n
) {
    const bool ok = sizes && (n == 0 || std::memcmp(got, want, n) == 0);
    rows.push_back({name, true, ok ? 0.0 : INFINITY, ok});
}

std::vector<float> selftest_values(int64_t n, uint64_t seed, float scale) {
    std::vector<float> v(static_cast<size_t>(n));
    for (size_t i = 0; i < v.size(); ++i) {
        float sum = -6.0f;
        for (uint64_t j = 0; j < 12; ++j) {
            sum += random_uniform(random_bits(seed, i, j));
        }
        v[i] = scale * sum * (random_bits(seed, i, 99) % 50 == 0 ? 4.0f : 1.0f);
    }
    return v;
}

namespace {

constexpr double kRounding = 3e-6;  // of sums of some hundred terms
constexpr Part   kWhole;

struct RowShape {
    int64_t rows, C;
};

std::vector<float> filled(size_t n) {
    return std::vector<float>(n, NAN);
}

// Types of x and y, and of what belongs to them.
struct Types {
    bool x16, y16;
};
constexpr Types kTypes[] = {{false, false}, {false, true}, {true, true}};

// With F32 against the CPU, with other types against that.
void test_norms(SelftestTable & table, RowShape s) {
    const auto      n = s.rows * s.C;
    const BothTypes x(selftest_values(n, 1)), dy(selftest_values(n, 2)), add(selftest_values(n, 3));
    const auto      w = selftest_values(s.C, 4), b = selftest_values(s.C, 5);
    const auto      old = selftest_values(s.C, 6);
    const DeviceArray<float> dev_w(w), dev_b(b);
    const std::string        shape = format(" %lldx%lld", (long long) s.rows, (long long) s.C);
    for (const bool rms : {false, true}) {
        const std::string name = rms ? "rms_norm" : "layer_norm";
        if (!table.wants(name)) {
            continue;
        }
        auto y = filled(x.values.size()), stats = filled(2 * s.rows), dx = y, dx0 = y;
        auto dw = old, db = old, only = filled(old.size());
        rms ? cpu::rms_norm(
                  kWhole, s.rows, s.C, 1e-5f, x.values.data(), w.data(), y.data(), stats.data()
              )
            : cpu::layer_norm(
                  kWhole, s.rows, s.C, 1e-5f, x.values.data(), w.data(), b.data(), y.data(),
                  stats.data()
              );
        const auto cpu_back = rms ? cpu::rms_norm_back : cpu::layer_norm_back;
        cpu_back(
            kWhole, s.rows, s.C, dy.values.data(), x.values.data(), w.data(), stats.data(),
            add.values.data(), dx.data()
        );
        cpu_back(
            kWhole, s.rows, s.C, dy.values.data(), x.values.data(), w.data(), stats.data(), nullptr,
            dx0.data()
        );
        cpu::norm_back_params(
            kWhole, s.rows, s.C, dy.values.data(), x.values.data(), stats.data(), 1.0f, dw.data(),
            db.data()
        );
        cpu::norm_back_params(
            kWhole, s.rows, s.C, dy.values.data(), x.values.data(), stats.data(), 0.0f, only.data(),
            nullptr
        );

        const BothResults        dev_y(y.size()), dev_dx(y.size()), dev_dx0(y.size());
        const DeviceArray<float> dev_stats(stats.size());
        const cuda::In           none(static_cast<float *>(nullptr));
        const auto               cuda_back = rms ? cuda::rms_norm_back : cuda::layer_norm_back;
        for (const auto & [x16, y16] : kTypes) {
            const DeviceArray<float> dev_dw(old), dev_db(old), dev_only(old.size());
            rms ? cuda::rms_norm(
                      nullptr, s.rows, s.C, 1e-5f, x.as(x16), dev_w, dev_y.as(y16), dev_stats
                  )
                : cuda::layer_norm(
                      nullptr, s.rows, s.C, 1e-5f, x.as(x16), dev_w, dev_b, dev_y.as(y16), dev_stats
                  );
            cuda_back(
                nullptr, s.rows, s.C, dy.as(y16), x.as(x16), dev_w, dev_stats, add.as(x16),
                dev_dx.as(x16)
            );
            cuda_back(
                nullptr, s.rows, s.C, dy.as(y16), x.as(x16), dev_w, dev_stats, none, dev_dx0.as(x16)
            );
            cuda::norm_back_params(
                nullptr, s.rows, s.C, dy.as(y16), x.as(x16), dev_stats, 1.0f, dev_dw, dev_db
            );
            cuda::norm_back_params(
                nullptr, s.rows, s.C, dy.as(y16), x.as(x16), dev_stats, 0.0f, dev_only, nullptr
            );
            const std::string of = name + (x16 ? " of bf16" : "") + shape;
            table.close(of + " stats", dev_stats.get(), stats, kRounding);
            table.close(of + " dw", dev_dw.get(), dw, kRounding);
            table.close(of + " db", dev_db.get(), db, kRounding);
            table.close(of + " dw alone", dev_only.get(), only, kRounding);
            if (!y16) {
                table.close(of, dev_y.f32.get(), y, kRounding);
            } else {
                table.rounds(of, dev_y);
            }
            if (!x16) {
                table.close(of + " back", dev_dx.f32.get(), dx, kRounding);
                table.close(of + " back alone", dev_dx0.f32.get(), dx0, kRounding);
            } else {
                table.rounds(of + " back", dev_dx);
                table.rounds(of + " back alone", dev_dx0);
            }
        }
    }
}

void test_sum_rows(SelftestTable & table, RowShape s) {
    const int64_t ld = s.C + 3;
    const auto    x  = selftest_values(s.rows * ld, 7);
    for (const float beta : {0.0f, 1.0f}) {
        auto                     out = beta == 0.0f ? filled(s.C) : selftest_values(s.C, 8);
        const DeviceArray<float> dev_x(x), dev_out(out);
        cpu::sum_rows(kWhole, s.rows, s.C, x.data(), ld, beta, out.data());
        cuda::sum_rows(nullptr, s.rows, s.C, dev_x, ld, beta, dev_out);
        table.close(
            format("sum_rows %lldx%lld", (long long) s.rows, (long long) s.C), dev_out.get(), out,
            kRounding
        );
        // of bf16: the same bits as of floats that are bf16
        const auto                  x16 = selftest_rounded(x);
        const DeviceArray<float>    dev_wide(selftest_widened(x16)), dev_a(out), dev_b(out);
        const DeviceArray<uint16_t> dev_x16(x16);
        cuda::sum_rows(nullptr, s.rows, s.C, dev_wide, ld, beta, dev_a);
        cuda::sum_rows(nullptr, s.rows, s.C, dev_x16, ld, beta, dev_b);
        table.same(
            format("sum_rows bf16 %lldx%lld", (long long) s.rows, (long long) s.C), dev_b.get(),
            dev_a.get()
        );
    }
}

void test_activations(SelftestTable & table, int64_t n) {
    const BothTypes   x(selftest_values(n, 9, 2.0f)), dy(selftest_values(n, 10));
    const BothTypes   up(selftest_values(n, 11));
    const BothResults dev_y(x.values.size()), dev_back(x.values.size()), dev_2(x.values.size());
    auto              y = filled(x.values.size()), second = y;
    const auto        check = [&](const std::string & name, const BothResults & got) {
        table.close(name, got.f32.get(), y, kRounding);
        table.rounds(name, got);
    };
    for (const auto kind : {cuda::Gelu::tanh, cuda::Gelu::erf}) {
        const std::string name =
            format("gelu %s %lld", kind == cuda::Gelu::erf ? "erf" : "tanh", (long long) n);
        for (const bool half : {false, true}) {
            cuda::gelu(nullptr, n, kind, x.as(half), dev_y.as(half));
            cuda::gelu_back(nullptr, n, kind, x.as(half), dy.as(half), dev_back.as(half));
        }
        cpu::gelu(kWhole, n, kind, x.values.data(), y.data());
        check(name, dev_y);
        cpu::gelu_back(kWhole, n, kind, x.values.data(), dy.values.data(), y.data());
        check(name + " back", dev_back);
    }
    const std::string name = format("swiglu %lld", (long long) n);
    for (const bool half : {false, true}) {
        cuda::swiglu(nullptr, n, x.as(half), up.as(half), dev_y.as(half));
        cuda::swiglu_back(
            nullptr, n, x.as(half), up.as(half), dy.as(half), dev_back.as(half), dev_2.as(half)
        );
    }
    cpu::swiglu(kWhole, n, x.values.data(), up.values.data(), y.data());
    check(name, dev_y);
    cpu::swiglu_back(
        kWhole, n, x.values.data(), up.values.data(), dy.values.data(), y.data(), second.data()
    );
    check(name + " dgate", dev_back);
    y = second;
    check(name + " dup", dev_2);
}

void test_embedding(SelftestTable & table, int64_t B, int64_t T, int64_t C, int64_t V) {
    const int64_t        n = B * T;
    std::vector<int32_t> ids(static_cast<size_t>(n));
    for (size_t i = 0; i < ids.size(); ++i) {  // some rows often, some never
        ids[i] =
            static_cast<int32_t>(random_bits(12, i) % static_cast<uint64_t>(i % 3 == 0 ? 3 : V));
    }
    const auto      words = selftest_values(V * C, 13), places = selftest_values(T * C, 14);
    const BothTypes dx(selftest_values(n * C, 15));
    const DeviceArray<int32_t> dev_ids(ids);
    const DeviceArray<float>   dev_words(words), dev_places(places);
    const BothResults          dev_x(dx.values.size());
    auto                       x = filled(dx.values.size());
    const std::string          shape =
        format(" %lldx%lldx%lld", (long long) B, (long long) T, (long long) C);
    for (const bool with : {true, false}) {
        cpu::embedding(
            kWhole, n, T, C, ids.data(), words.data(), with ? places.data() : nullptr, x.data()
        );
        for (const bool half : {false, true}) {
            cuda::embedding(
                nullptr, n, T, C, dev_ids, dev_words,
                with ? static_cast<float *>(dev_places) : nullptr, dev_x.as(half)
            );
        }
        table.same("embedding" + shape, dev_x.f32.get(), x);
        table.rounds("embedding" + shape, dev_x);
    }
    for (const bool half : {false, true}) {
        for (const float beta : {0.0f, 1.0f}) {
            auto dw = beta == 0.0f ? filled(words.size()) : words,
                 dp = beta == 0.0f ? filled(places.size()) : places;
            const DeviceArray<float> dev_dw(dw), dev_dp(dp);
            cpu::embedding_back(kWhole, n, V, C, ids.data(), dx.values.data(), beta, dw.data());
            cuda::embedding_back(nullptr, n, V, C, dev_ids, dx.as(half), beta, dev_dw);
            table.same("embedding_back" + shape, dev_dw.get(), dw);  // same order of the same sums
            cpu::position_back(kWhole, B, T, C, dx.values.data(), beta, dp.data());
            cuda::position_back(nullptr, B, T, C, dx.as(half), beta, dev_dp);
            table.same("position_back" + shape, dev_dp.get(), dp);
        }
    }
}

void test_cross_entropy(SelftestTable & table, int64_t rows, int64_t V, int64_t ld) {
    const BothTypes      x(selftest_values(rows * ld, 16, 3.0f));
    std::vector<int32_t> labels(static_cast<size_t>(rows));
    for (size_t r = 0; r < labels.size(); ++r) {
        labels[r] =
            r % 4 == 1 ? -1 : static_cast<int32_t>(random_bits(17, r) % static_cast<uint64_t>(V));
    }
    const std::vector<float>   scale = {0.25f};
    const DeviceArray<int32_t> dev_labels(labels);
    const DeviceArray<float>   dev_scale(scale);
    const std::string          shape = format(" %lldx%lld", (long long) rows, (long long) V);
    for (const float smoothing : {0.0f, 0.1f}) {
        for (const bool grad : {false, true}) {
            auto            logits = x.values, loss = filled(rows);
            const BothTypes dev(x.values);  // gradients take the logits' place
            cpu::cross_entropy(
                kWhole, rows, V, ld, logits.data(), labels.data(), smoothing, scale[0], grad,
                loss.data()
            );
            for (const bool half : {false, true}) {
                const DeviceArray<float> dev_loss(loss.size());
                const cuda::Out          none(static_cast<float *>(nullptr));
                const cuda::Out          to = half ? cuda::Out(dev.bf16) : cuda::Out(dev.f32);
                cuda::cross_entropy(
                    nullptr, rows, V, ld, dev.as(half), dev_labels, smoothing, dev_scale,
                    grad ? to : none, dev_loss
                );
                table.close("cross_entropy" + shape, dev_loss.get(), loss, kRounding);
            }
            if (grad) {
                table.close("cross_entropy grad" + shape, dev.f32.get(), logits, kRounding);
                table.same(
                    "cross_entropy grad as bf16" + shape, dev.bf16.get(),
                    selftest_rounded(dev.f32.get())
                );
            }
        }
    }
}

}  // namespace

void selftest_cuda_layers(SelftestTable & table) {
    using Shapes       = std::vector<RowShape>;
    const bool   small = table.small();
    const Shapes row_shapes =
        small ? Shapes{{3, 37}} : Shapes{{1, 3}, {9, 33}, {70, 100}, {3, 768}};
    for (const RowShape & s : row_shapes) {
        if (table.wants("layer_norm") || table.wants("rms_norm")) {
            test_norms(table, s);
        }
        if (table.wants("sum_rows")) {
            test_sum_rows(table, s);
        }
    }
    for (const int64_t n : small ? std::vector<int64_t>{300} : std::vector<int64_t>{1, 255, 1000}) {
        if (table.wants("gelu") || table.wants("swiglu")) {
            test_activations(table, n);
        }
    }
    if (table.wants("embedding") || table.wants("position_back")) {
        test_embedding(table, 2, 3, 5, 7);
        if (!small) {
            test_embedding(table, 3, 100, 40, 60);
        }
    }
    if (table.wants("cross_entropy")) {
        test_cross_entropy(table, 3, 17, 20);
        if (!small) {
            test_cross_entropy(table, 5, 1000, 1000);
        }
    }
}

std::vector<SelftestRow> selftest_cuda(const SelftestOptions & options) {
    SelftestTable table(options);
    selftest_cuda_layers(table);
    selftest_cuda_attention(table);
    selftest_cuda_gemm(table);
    selftest_cuda_demo(table);
    selftest_cuda_muon(table);
    selftest_cuda_optim(table);
    return table.rows;
}

}  // namespace gt
