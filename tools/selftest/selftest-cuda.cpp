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

void test_norms(SelftestTable & table, RowShape s) {
    const auto n = s.rows * s.C;
    const auto x = selftest_values(n, 1), dy = selftest_values(n, 2), add = selftest_values(n, 3);
    const auto w = selftest_values(s.C, 4), b = selftest_values(s.C, 5);
    const auto old = selftest_values(s.C, 6);
    const DeviceArray<float> dev_x(x), dev_dy(dy), dev_add(add), dev_w(w), dev_b(b);
    const std::string        shape = format(" %lldx%lld", (long long) s.rows, (long long) s.C);
    for (const bool rms : {false, true}) {
        const std::string name = rms ? "rms_norm" : "layer_norm";
        if (!table.wants(name)) {
            continue;
        }
        auto y = filled(x.size()), stats = filled(2 * s.rows), dx = filled(x.size()), dx0 = dx;
        const DeviceArray<float>    dev_y(x.size()), dev_stats(stats.size()), dev_dx(x.size());
        const DeviceArray<uint16_t> dev_y16(x.size());
        // forward
        if (rms) {
            cpu::rms_norm(kWhole, s.rows, s.C, 1e-5f, x.data(), w.data(), y.data(), stats.data());
            cuda::rms_norm(nullptr, s.rows, s.C, 1e-5f, dev_x, dev_w, dev_y, dev_stats);
            cuda::rms_norm(nullptr, s.rows, s.C, 1e-5f, dev_x, dev_w, dev_y16, dev_stats);
        } else {
            cpu::layer_norm(
                kWhole, s.rows, s.C, 1e-5f, x.data(), w.data(), b.data(), y.data(), stats.data()
            );
            cuda::layer_norm(nullptr, s.rows, s.C, 1e-5f, dev_x, dev_w, dev_b, dev_y, dev_stats);
            cuda::layer_norm(nullptr, s.rows, s.C, 1e-5f, dev_x, dev_w, dev_b, dev_y16, dev_stats);
        }
        table.close(name + shape, dev_y.get(), y, kRounding);
        table.same(name + " bf16" + shape, dev_y16.get(), selftest_rounded(dev_y.get()));
        table.close(name + " stats" + shape, dev_stats.get(), stats, kRounding);

        // gradient of x, with and without addition
        const auto cpu_back  = rms ? cpu::rms_norm_back : cpu::layer_norm_back;
        const auto cuda_back = rms ? cuda::rms_norm_back : cuda::layer_norm_back;
        cpu_back(
            kWhole, s.rows, s.C, dy.data(), x.data(), w.data(), stats.data(), add.data(), dx.data()
        );
        cuda_back(nullptr, s.rows, s.C, dev_dy, dev_x, dev_w, dev_stats, dev_add, dev_dx);
        table.close(name + "_back" + shape, dev_dx.get(), dx, kRounding);
        cpu_back(
            kWhole, s.rows, s.C, dy.data(), x.data(), w.data(), stats.data(), nullptr, dx0.data()
        );
        cuda_back(nullptr, s.rows, s.C, dev_dy, dev_x, dev_w, dev_stats, nullptr, dev_dx);
        table.close(name + "_back alone" + shape, dev_dx.get(), dx0, kRounding);

        // gradients of the parameters, added and alone
        auto                     dw = old, db = old, only = filled(old.size());
        const DeviceArray<float> dev_dw(old), dev_db(old), dev_only(old.size());
        cpu::norm_back_params(
            kWhole, s.rows, s.C, dy.data(), x.data(), stats.data(), 1.0f, dw.data(), db.data()
        );
        cuda::norm_back_params(
            nullptr, s.rows, s.C, dev_dy, dev_x, dev_stats, 1.0f, dev_dw, dev_db
        );
        table.close(name + " dw" + shape, dev_dw.get(), dw, kRounding);
        table.close(name + " db" + shape, dev_db.get(), db, kRounding);
        cpu::norm_back_params(
            kWhole, s.rows, s.C, dy.data(), x.data(), stats.data(), 0.0f, only.data(), nullptr
        );
        cuda::norm_back_params(
            nullptr, s.rows, s.C, dev_dy, dev_x, dev_stats, 0.0f, dev_only, nullptr
        );
        table.close(name + " dw alone" + shape, dev_only.get(), only, kRounding);
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
    const auto x = selftest_values(n, 9, 2.0f), dy = selftest_values(n, 10),
               up = selftest_values(n, 11);
    const DeviceArray<float>    dev_x(x), dev_dy(dy), dev_up(up), dev_y(x.size()), dev_2(x.size());
    const DeviceArray<uint16_t> dev_16(x.size());
    auto                        y = filled(x.size()), second = y;
    const auto rounds = [&](const std::string & name) {  // as bf16: the floats, rounded
        table.same(name + " bf16", dev_16.get(), selftest_rounded(dev_y.get()));
    };
    for (const auto kind : {cuda::Gelu::tanh, cuda::Gelu::erf}) {
        const std::string name =
            format("gelu %s %lld", kind == cuda::Gelu::erf ? "erf" : "tanh", (long long) n);
        cpu::gelu(kWhole, n, kind, x.data(), y.data());
        cuda::gelu(nullptr, n, kind, dev_x, dev_y);
        table.close(name, dev_y.get(), y, kRounding);
        cuda::gelu(nullptr, n, kind, dev_x, dev_16);
        rounds(name);
        cpu::gelu_back(kWhole, n, kind, x.data(), dy.data(), y.data());
        cuda::gelu_back(nullptr, n, kind, dev_x, dev_dy, dev_y);
        table.close(name + " back", dev_y.get(), y, kRounding);
        cuda::gelu_back(nullptr, n, kind, dev_x, dev_dy, dev_16);
        rounds(name + " back");
    }
    const std::string name = format("swiglu %lld", (long long) n);
    cpu::swiglu(kWhole, n, x.data(), up.data(), y.data());
    cuda::swiglu(nullptr, n, dev_x, dev_up, dev_y);
    table.close(name, dev_y.get(), y, kRounding);
    cuda::swiglu(nullptr, n, dev_x, dev_up, dev_16);
    rounds(name);
    cpu::swiglu_back(kWhole, n, x.data(), up.data(), dy.data(), y.data(), second.data());
    cuda::swiglu_back(nullptr, n, dev_x, dev_up, dev_dy, dev_y, dev_2);
    table.close(name + " dgate", dev_y.get(), y, kRounding);
    table.close(name + " dup", dev_2.get(), second, kRounding);
}

void test_embedding(SelftestTable & table, int64_t B, int64_t T, int64_t C, int64_t V) {
    const int64_t        n = B * T;
    std::vector<int32_t> ids(static_cast<size_t>(n));
    for (size_t i = 0; i < ids.size(); ++i) {  // some rows often, some never
        ids[i] =
            static_cast<int32_t>(random_bits(12, i) % static_cast<uint64_t>(i % 3 == 0 ? 3 : V));
    }
    const auto words = selftest_values(V * C, 13), places = selftest_values(T * C, 14),
               dx = selftest_values(n * C, 15);
    const DeviceArray<int32_t> dev_ids(ids);
    const DeviceArray<float>   dev_words(words), dev_places(places), dev_dx(dx), dev_x(dx.size());
    auto                       x = filled(dx.size());
    const std::string          shape =
        format(" %lldx%lldx%lld", (long long) B, (long long) T, (long long) C);
    for (const bool with : {true, false}) {
        cpu::embedding(
            kWhole, n, T, C, ids.data(), words.data(), with ? places.data() : nullptr, x.data()
        );
        cuda::embedding(
            nullptr, n, T, C, dev_ids, dev_words, with ? static_cast<float *>(dev_places) : nullptr,
            dev_x
        );
        table.same("embedding" + shape, dev_x.get(), x);
    }
    for (const float beta : {0.0f, 1.0f}) {
        auto dw = beta == 0.0f ? filled(words.size()) : words,
             dp = beta == 0.0f ? filled(places.size()) : places;
        const DeviceArray<float> dev_dw(dw), dev_dp(dp);
        cpu::embedding_back(kWhole, n, V, C, ids.data(), dx.data(), beta, dw.data());
        cuda::embedding_back(nullptr, n, V, C, dev_ids, dev_dx, beta, dev_dw);
        table.same("embedding_back" + shape, dev_dw.get(), dw);  // same order of the same sums
        cpu::position_back(kWhole, B, T, C, dx.data(), beta, dp.data());
        cuda::position_back(nullptr, B, T, C, dev_dx, beta, dev_dp);
        table.same("position_back" + shape, dev_dp.get(), dp);
    }
}

void test_cross_entropy(SelftestTable & table, int64_t rows, int64_t V, int64_t ld) {
    const auto           x = selftest_values(rows * ld, 16, 3.0f);
    std::vector<int32_t> labels(static_cast<size_t>(rows));
    for (size_t r = 0; r < labels.size(); ++r) {
        labels[r] =
            r % 4 == 1 ? -1 : static_cast<int32_t>(random_bits(17, r) % static_cast<uint64_t>(V));
    }
    const std::vector<float>   scale = {0.25f};
    const DeviceArray<int32_t> dev_labels(labels);
    const DeviceArray<float>   dev_scale(scale);
    for (const float smoothing : {0.0f, 0.1f}) {
        for (const bool grad : {false, true}) {
            auto                        logits = x, loss = filled(rows);
            const DeviceArray<float>    dev_logits(x), dev_loss(loss.size());
            const DeviceArray<uint16_t> dev_grad16(x.size());
            const cuda::Out             none(static_cast<float *>(nullptr));
            cuda::cross_entropy(
                nullptr, rows, V, ld, dev_logits, dev_labels, smoothing, dev_scale, dev_grad16,
                dev_loss
            );
            cpu::cross_entropy(
                kWhole, rows, V, ld, logits.data(), labels.data(), smoothing, scale[0], grad,
                loss.data()
            );
            cuda::cross_entropy(
                nullptr, rows, V, ld, dev_logits, dev_labels, smoothing, dev_scale,
                grad ? cuda::Out(dev_logits) : none, dev_loss
            );
            const std::string shape = format(" %lldx%lld", (long long) rows, (long long) V);
            table.close("cross_entropy" + shape, dev_loss.get(), loss, kRounding);
            if (grad) {
                table.close("cross_entropy grad" + shape, dev_logits.get(), logits, kRounding);
                table.same(
                    "cross_entropy grad bf16" + shape, dev_grad16.get(),
                    selftest_rounded(dev_logits.get())
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
