// tools/selftest/selftest-cuda-muon.cpp — the muon rule on the device against optim/rules/muon.cpp, bit for bit.
#include "ggml-train/cuda/muon.h"
#include "optim/rules/rule.h"
#include "tools/selftest/selftest-cuda.h"

namespace gt {

namespace {

constexpr float kLr = 0.01f, kScale = 0.8f, kMomentum = 0.9f, kDecay = 0.1f;

struct MuonCase {
    int64_t   rows, cols;
    int       n_steps;
    ParamKind kind  = ParamKind::matrix;
    int64_t   count = 1;  // of such tensors; the device moves them together
};

// Two updates: the first finds no momentum, the second one.
void test_muon(SelftestTable & table, const std::string & name, const MuonCase & c) {
    const cuda::Matrices    matrices{c.count, c.rows, c.cols};
    const int64_t           n = matrices.size(), all = c.count * n;
    auto                    p = selftest_values(all, 60);
    std::vector<RuleTensor> tensors;
    for (int64_t i = 0; i < c.count; ++i) {
        tensors.push_back(
            {.name   = "w",
             .weight = std::span(p).subspan(i * n, n),
             .rows   = c.rows,
             .cols   = c.cols,
             .kind   = c.kind,
             .decay  = kDecay}
        );
    }
    const auto rule = make_muon(tensors, {.momentum = kMomentum, .n_steps = c.n_steps});

    const DeviceArray<float>   dev_p(p), dev_m(std::vector<float>(p.size(), 0.0f)), dev_x(p.size());
    const DeviceArray<uint8_t> room(cuda::orthogonalise_bytes(matrices));
    for (uint64_t t = 0; t < 2; ++t) {
        auto u = selftest_values(all, 61 + t);
        for (size_t i = 3; i < u.size(); i += 7) {
            u[i] = i % 2 == 0 ? 0.0f : u[i] * 1e-30f;
        }
        rule->begin(kLr);
        for (int64_t i = 0; i < c.count; ++i) {
            rule->update(static_cast<int>(i), 0, n, u.data() + i * n, kScale);
        }
        const DeviceArray<float> dev_u(u);
        const float              keep = 1.0f - kLr * kDecay;
        if (c.kind != ParamKind::matrix) {
            cuda::nesterov_sign(nullptr, all, {kScale, kMomentum, keep, kLr}, dev_u, dev_m, dev_p);
            continue;
        }
        cuda::nesterov(nullptr, all, kScale, kMomentum, dev_u, dev_m, dev_x);
        const float * x = cuda::orthogonalise(nullptr, matrices, c.n_steps, dev_x, room);
        cuda::sgd(nullptr, all, keep, kLr * muon_growth(tensors[0]), x, dev_p);
    }
    OptimizerState state;
    rule->add_state(state, true);
    std::vector<float> m;
    for (const StateTensor & tensor : state.tensors) {
        m.insert(m.end(), tensor.values.begin(), tensor.values.end());
    }
    table.same(name, dev_p.get(), p);
    table.same(name + " momentum", dev_m.get(), m);
}

}  // namespace

void selftest_cuda_muon(SelftestTable & table) {
    constexpr auto        kMatrix = ParamKind::matrix;
    std::vector<MuonCase> cases   = {
          {5, 19, 1, kMatrix, 3}, {19, 5, 1}, {300, 1, 0, ParamKind::vector}};
    if (!table.small()) {
        const std::vector<MuonCase> full = {
            {1, 9, 5},    {9, 1, 5},    {64, 64, 1, kMatrix, 2}, {66, 130, 2},
            {130, 66, 2}, {33, 300, 5}, {70, 40, 5, kMatrix, 4}};
        cases.insert(cases.end(), full.begin(), full.end());
    }
    for (const MuonCase & c : cases) {
        const std::string name = format(
            "muon %lld of %lldx%lld", (long long) c.count, (long long) c.rows, (long long) c.cols
        );
        if (table.wants(name)) {
            test_muon(table, name, c);
        }
    }
}

}  // namespace gt
