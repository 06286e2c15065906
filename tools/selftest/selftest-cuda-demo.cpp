// tools/selftest/selftest-cuda-demo.cpp — the FlexDeMo step and the rules on the device against optim/, bit
// for bit: messages, remaining momentum, merged updates, weights. Compiled with -ffp-contract=off.
#include "ggml-train/cuda/demo.h"
#include "optim/device/dct-program.h"
#include "optim/tables.h"
#include "tools/selftest/selftest-cuda.h"

#include <cmath>

namespace gt {

namespace {

struct DemoCase {
    const char * name;
    int64_t      rows, cols;
    const char * chunk;
    int64_t      k;
    Wire         wire      = Wire::fp32;
    int          n_hosts   = 3;
    bool         is_vector = false;
    float        scale     = 1.0f;  // of the values; 0: all equal
};

// Values with everything that is awkward: ties, zeros, tiny and large ones.
std::vector<float> awkward(const DemoCase & c, uint64_t seed) {
    auto m = selftest_values(c.rows * c.cols, seed, c.scale);
    for (size_t i = 0; i < m.size(); ++i) {
        m[i] = c.scale == 0.0f ? 0.25f : i % 97 == 5 ? 0.0f : i % 89 == 3 ? m[i] * 1e-20f : m[i];
    }
    return m;
}

void test_demo(SelftestTable & table, const DemoCase & c) {
    const TensorShape shape{.name = "w", .rows = c.rows, .cols = c.cols, .is_vector = c.is_vector};
    const ChunkTarget target = parse_chunk(c.chunk);
    const ChunkGrid   grid   = chunk_grid(shape, target);
    const auto        demo   = make_demo({.chunk = c.chunk, .top_k = c.k}, {shape}, c.wire);
    const Plan        round  = demo->plan(0);
    const Unit        unit{0, 0, c.rows};
    const DemoPlan    plan(grid, c.k, c.wire);
    const DeviceArray<uint8_t> tables(plan.tables());
    const cuda::DemoChunks     chunks = plan.chunks(tables, grid.n_chunks());
    const std::string          name   = std::string("demo ") + c.name;

    std::vector<Bytes>                                 messages;
    std::vector<std::unique_ptr<DeviceArray<uint8_t>>> device_messages;
    std::vector<Piece>                                 pieces;
    std::vector<cuda::DemoPiece>                       device_pieces;
    for (int host = 0; host < c.n_hosts; ++host) {
        auto                     m = awkward(c, 100 + static_cast<uint64_t>(host));
        const auto               g = awkward(c, 200 + static_cast<uint64_t>(host));
        const DeviceArray<float> dev_m(m), dev_g(g);
        // extract: a step without a message, then two with one, the last without a gradient
        demo->extract(round, unit, {g.data(), 0.9f, 0.3f}, m.data(), nullptr);
        cuda::demo_extract(nullptr, chunks, {dev_g, 0.9f, 0.3f}, dev_m, nullptr);
        table.same(name + " folded", dev_m.get(), m);
        messages.emplace_back(static_cast<size_t>(demo->bytes(round, unit)));
        device_messages.push_back(std::make_unique<DeviceArray<uint8_t>>(messages.back().size()));
        for (const bool grad : {true, false}) {
            demo->extract(
                round, unit, {grad ? g.data() : nullptr, 0.9f, 0.3f}, m.data(),
                messages.back().data()
            );
            cuda::demo_extract(
                nullptr, chunks, {grad ? static_cast<float *>(dev_g) : nullptr, 0.9f, 0.3f}, dev_m,
                *device_messages.back()
            );
            table.same(name + " message", device_messages.back()->get(), messages.back());
            table.same(name + " momentum left", dev_m.get(), m);
        }
        // give back, unless the message is refused
        double norm2 = 0.0;
        if (demo->check(round, unit, messages.back().data(), norm2) != nullptr) {
            return;  // refused values are never merged or given back
        }
        demo->give_back(round, unit, messages.back().data(), m.data());
        cuda::demo_give_back(nullptr, chunks, *device_messages.back(), dev_m);
        table.same(name + " given back", dev_m.get(), m);
    }
    // merge the messages of all hosts
    for (int host = 0; host < c.n_hosts; ++host) {
        const double weight = 1.0 + 7.0 * host, scale = host == 1 ? 0.7 : 1.0;
        pieces.push_back({messages[static_cast<size_t>(host)].data(), weight, scale});
        device_pieces.push_back({*device_messages[static_cast<size_t>(host)], weight, scale});
    }
    std::vector<float> update(static_cast<size_t>(c.rows * c.cols), NAN);
    demo->merge(round, unit, pieces, update.data());
    const DeviceArray<cuda::DemoPiece> dev_pieces(device_pieces);
    const DeviceArray<float>           dev_update(update.size());
    cuda::demo_merge(nullptr, chunks, dev_pieces, c.n_hosts, dev_update);
    table.same(name + " update", dev_update.get(), update);
}

void test_fold_and_sign(SelftestTable & table, int64_t n) {
    const auto g = selftest_values(n, 31);
    auto       m = selftest_values(n, 32);
    m[0]         = -1e-31f;
    const DeviceArray<float> dev_g(g), dev_m(m);
    fold_elements({g.data(), 0.999f, 0.003f}, n, m.data());
    cuda::fold(nullptr, n, 0.999f, 0.003f, dev_g, dev_m);
    table.same("fold", dev_m.get(), m);
    m[n / 2] = 0.0f;
    const DeviceArray<float> dev_u(m);
    for (float & u : m) {
        u = u > 0.0f ? 1.0f : u < 0.0f ? -1.0f : 0.0f;
    }
    cuda::take_sign(nullptr, n, dev_u);
    table.same("take_sign", dev_u.get(), m);
}

void test_rules(SelftestTable & table, int64_t n) {
    auto                     p = selftest_values(n, 33), q = p;
    const DeviceArray<float> dev_p(p), dev_q(q);
    const DeviceArray<float> dev_m(std::vector<float>(p.size(), 0.0f)),
        dev_v(std::vector<float>(p.size(), 0.0f));
    const auto tensor = [n](std::vector<float> & weight) {
        return std::vector<RuleTensor>{
            {.name = "w", .weight = weight, .rows = n, .lr = 0.5f, .decay = 0.1f}};
    };
    const auto sgd = make_sgd(tensor(p)), adamw = make_adamw(tensor(q), {});
    double     power1 = 1.0, power2 = 1.0;
    for (int t = 1; t <= 4; ++t) {
        const float              lr = 0.01f * static_cast<float>(t);
        const auto               u  = selftest_values(n, 34 + static_cast<uint64_t>(t));
        const DeviceArray<float> dev_u(u);
        sgd->begin(lr);
        sgd->update(0, 0, n, u.data(), 0.8f);
        const float rate = lr * 0.5f;
        cuda::sgd(nullptr, n, 1.0f - rate * 0.1f, rate * 0.8f, dev_u, dev_p);
        adamw->begin(lr);
        adamw->update(0, 0, n, u.data(), 0.8f);
        power1 *= static_cast<double>(0.9f);
        power2 *= static_cast<double>(0.95f);
        const cuda::AdamStep step{
            .keep = 1.0f - lr * 0.5f * 0.1f,
            .rate = static_cast<float>(lr / (1.0 - power1)) * 0.5f,
            .root = static_cast<float>(1.0 / std::sqrt(1.0 - power2))};
        cuda::adamw(nullptr, n, step, 0.8f, dev_u, dev_q, dev_m, dev_v);
    }
    table.same("sgd", dev_p.get(), p);
    table.same("adamw", dev_q.get(), q);
}

void test_squares(SelftestTable & table, int64_t rows, int64_t cols) {
    auto      grad = selftest_values(rows * cols, 40);
    ParamView param{
        .name      = "w",
        .ne        = {cols, rows, 1, 1},
        .row_begin = 0,
        .row_end   = rows,
        .weight    = grad,
        .grad      = grad};
    Workers             workers(1);
    OptimOptions        options{.rule = "sgd"};  // muon would not cut matrices
    std::vector<double> parts(static_cast<size_t>(grad_norm_parts(options, {param})));
    grad_norm(options, {param}, workers, parts);
    const int64_t             unit = largest_divisor(rows, 64) * cols;
    const DeviceArray<float>  dev_grad(grad);
    const DeviceArray<double> dev_parts(parts.size());
    cuda::sums_of_squares(nullptr, rows * cols, unit, dev_grad, dev_parts);
    table.same("sums_of_squares", dev_parts.get(), parts);
}

void test_digests(SelftestTable & table, size_t bytes) {
    constexpr size_t      kBlock = 1024;
    std::vector<uint8_t>  data(bytes);
    std::vector<uint64_t> want;
    for (size_t i = 0; i < bytes; ++i) {
        data[i] = static_cast<uint8_t>(random_bits(41, i));
    }
    for (size_t at = 0; at < bytes; at += kBlock) {
        const std::span<const uint8_t> all(data);
        want.push_back(digest64(all.subspan(at, std::min(kBlock, bytes - at)), 5 + want.size()));
    }
    const DeviceArray<uint8_t>  dev_data(data);
    const DeviceArray<uint64_t> dev_out(want.size());
    cuda::digests(nullptr, bytes, kBlock, 5, dev_data, dev_out);
    table.same("digests", dev_out.get(), want);
}

}  // namespace

void selftest_cuda_demo(SelftestTable & table) {
    using Cases       = std::vector<DemoCase>;
    const Cases small = {
        {"6x5 of 3x5, q8", 6, 5, "3x5", 4, Wire::q8, 1},
        {"8x8 of 8x8", 8, 8, "8x8", 5, Wire::fp32, 2},
        {"vector of 16", 16, 1, "8x8", 3, Wire::fp16, 1, true},
    };
    const Cases full = {
        {"64x128 of 64x64", 64, 128, "64x64", 32},
        {"64x128 of 64x64, fp16", 64, 128, "64x64", 32, Wire::fp16},
        {"32x64 of 32x32, q8", 32, 64, "32x32", 32, Wire::q8, 4},
        {"32x64 of 32x32, q4", 32, 64, "32x32", 33, Wire::q4},
        {"32x64 of 32x32, q2", 32, 64, "32x32", 31, Wire::q2},
        {"58x67 of 29x1", 58, 67, "64x64", 4, Wire::fp16},
        {"48x50 of 48x50", 48, 50, "64x64", 20, Wire::q4},
        {"16x16 of 16x16, all sent", 16, 16, "16x16", 256},
        {"16x16 of 16x16, half sent", 16, 16, "16x16", 128, Wire::q2, 9},
        {"vector of 150", 150, 1, "64x64", 32, Wire::fp32, 3, true},
        {"flat, 512 of 24x64", 24, 64, "512", 16, Wire::fp16},
        {"equal values", 16, 32, "16x16", 8, Wire::fp32, 2, false, 0.0f},
        {"tiny values", 16, 32, "16x16", 8, Wire::q4, 2, false, 1e-26f},
        {"too large values", 16, 32, "16x16", 8, Wire::q8, 1, false, 1e12f},
        {"many senders", 16, 16, "16x16", 40, Wire::fp16, 60},
    };
    Cases cases = small;
    if (!table.small()) {
        cases.insert(cases.end(), full.begin(), full.end());
    }
    for (const DemoCase & c : cases) {
        if (table.wants(std::string("demo ") + c.name)) {
            test_demo(table, c);
        }
    }
    if (table.wants("fold") || table.wants("take_sign")) {
        test_fold_and_sign(table, 1000);
    }
    if (table.wants("sgd") || table.wants("adamw")) {
        test_rules(table, table.small() ? 100 : 777);
    }
    if (table.wants("sums_of_squares")) {
        test_squares(table, table.small() ? 6 : 200, 35);
    }
    if (table.wants("digests")) {
        test_digests(table, 64 * 1024 + 4);
    }
}

}  // namespace gt
