// tools/selftest/selftest-cuda-demo.cpp — the FlexDeMo step and the rules on the device against optim/, bit
// for bit: messages, remaining momentum, merged updates, weights. Compiled with -ffp-contract=off.
#include "ggml-train/cuda/demo.h"
#include "optim/device/dct-program.h"
#include "optim/math/squares.h"
#include "optim/tables.h"
#include "tools/selftest/selftest-cuda.h"

#include <cmath>
#include <numeric>

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

// The last block of a row is shorter; values of all sizes.
void test_moments(SelftestTable & table, int64_t rows, int64_t cols) {
    const int64_t            n = rows * cols;
    auto                     p = selftest_values(n, 45);
    std::vector<float>       zeros(static_cast<size_t>(rows * cuda::moment_floats(cols)), 0.0f);
    const DeviceArray<float> dev_p(p), dev_m(zeros), dev_v(zeros);
    const auto               rule = make_adamw(
                      {{.name = "w", .weight = p, .rows = rows, .cols = cols, .decay = 0.1f}}, {.q8 = true}
                  );
    for (uint64_t t = 1; t <= 4; ++t) {
        auto u = selftest_values(n, 46 + t);
        for (int64_t i = 0; i < n; ++i) {
            const float small = i % 3 == 0 ? 1e-3f : i % 3 == 1 ? 1e-6f : 1.0f;
            u[i]              = i / cols == 1 || i % 5 == 0 ? 0.0f : u[i] * small;
        }
        u[0] = 1e25f;  // its square overflows
        rule->begin(0.01f);
        rule->update(0, 0, n, u.data(), 0.8f);
        const DeviceArray<float> dev_u(u);
        const AdamStep           step = adam_step({}, t, 0.01f);
        cuda::adamw_q8(
            nullptr, rows, cols, {1.0f - 0.01f * 0.1f, step.rate, step.root}, 0.8f, dev_u, dev_p,
            dev_m, dev_v
        );
    }
    OptimizerState state;
    rule->add_state(state, true);
    const auto saved = [&](int i) { return state.tensors[i].floats().read(); };
    table.same("adamw, moments of 8 bits", dev_p.get(), p);
    table.same("first moments of 8 bits", dev_m.get(), saved(0));
    table.same("second moments of 8 bits", dev_v.get(), saved(1));
}

// Arrays of these sizes in one launch.
struct SpanCase {
    std::vector<int64_t> sizes;
    int64_t              piece;

    int64_t n_pieces() const {
        int64_t n = 0;
        for (const int64_t size : sizes) {
            n += (size + piece - 1) / piece;
        }
        return n;
    }
    std::vector<cuda::Span> arrays(const void * data, size_t element) const {
        std::vector<cuda::Span> result;
        int64_t                 at = 0, first = 0;
        for (const int64_t size : sizes) {
            const auto * from =
                static_cast<const uint8_t *>(data) + static_cast<size_t>(at) * element;
            result.push_back(
                {.data = from, .n = size, .first = first, .seed = 5 + static_cast<uint64_t>(first)}
            );
            at += size;
            first += (size + piece - 1) / piece;
        }
        return result;
    }
};

void test_squares(SelftestTable & table, const SpanCase & c) {
    const int64_t       all = std::accumulate(c.sizes.begin(), c.sizes.end(), int64_t{0});
    const auto          x   = selftest_values(all, 40);
    std::vector<double> want, sums;
    int64_t             at = 0;
    for (const int64_t size : c.sizes) {
        want.push_back(sum_of_squares(x.data() + at, size));
        at += size;
    }
    const DeviceArray<float> dev_x(x);
    const auto               arrays = c.arrays(static_cast<const float *>(dev_x), sizeof(float));
    const DeviceArray<cuda::Span> dev_arrays(arrays);
    const DeviceArray<double>     dev_parts(static_cast<size_t>(c.n_pieces()));
    cuda::sums_of_squares(
        nullptr,
        {.table = dev_arrays, .n = static_cast<int64_t>(arrays.size()), .n_pieces = c.n_pieces()},
        dev_parts
    );
    const std::vector<double> parts = dev_parts.get();
    for (size_t i = 0; i < arrays.size(); ++i) {
        const auto from = parts.begin() + arrays[i].first;
        const auto to   = i + 1 < arrays.size() ? parts.begin() + arrays[i + 1].first : parts.end();
        sums.push_back(std::accumulate(from, to, 0.0));
    }
    table.same("sums_of_squares", sums, want);
}

void test_digests(SelftestTable & table, const SpanCase & c) {
    const int64_t         all = std::accumulate(c.sizes.begin(), c.sizes.end(), int64_t{0});
    std::vector<uint8_t>  data(static_cast<size_t>(all));
    std::vector<uint64_t> want;
    for (size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<uint8_t>(random_bits(41, i));
    }
    std::span<const uint8_t> rest(data);
    for (const int64_t size : c.sizes) {
        for (int64_t at = 0; at < size; at += c.piece) {
            const auto n = static_cast<size_t>(std::min(c.piece, size - at));
            want.push_back(digest64(rest.first(n), 5 + want.size()));
            rest = rest.subspan(n);
        }
    }
    const DeviceArray<uint8_t>    dev_data(data);
    const auto                    arrays = c.arrays(static_cast<const uint8_t *>(dev_data), 1);
    const DeviceArray<cuda::Span> dev_arrays(arrays);
    const DeviceArray<uint64_t>   dev_out(want.size());
    cuda::digests(
        nullptr,
        {.table = dev_arrays, .n = static_cast<int64_t>(arrays.size()), .n_pieces = c.n_pieces()},
        dev_out
    );
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
    if (table.wants("adamw")) {
        test_moments(table, 3, table.small() ? 301 : 1031);
    }
    if (table.wants("sums_of_squares")) {
        test_squares(table, {{7, 4096, 1}, cuda::kSquaresPiece});
        if (!table.small()) {
            test_squares(table, {{300'000, 4097, 35, 8192, 12'000}, cuda::kSquaresPiece});
        }
    }
    if (table.wants("digests")) {
        test_digests(table, {{40, 16'384, 4}, cuda::kDigestPiece});
        if (!table.small()) {
            test_digests(table, {{100'004, 16'388, 12, 70'001}, cuda::kDigestPiece});
        }
    }
}

}  // namespace gt
