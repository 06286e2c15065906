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
    ParamKind kind = ParamKind::matrix;
};

// Two updates: the first finds no momentum, the second one.
void test_muon(SelftestTable & table, const std::string & name, const MuonCase & c) {
    const int64_t    n = c.rows * c.cols;
    auto             p = selftest_values(n, 60);
    const RuleTensor tensor{
        .name = "w", .weight = p, .rows = c.rows, .cols = c.cols, .kind = c.kind, .decay = kDecay};
    const auto rule = make_muon({tensor}, {.momentum = kMomentum, .n_steps = c.n_steps});

    const DeviceArray<float>   dev_p(p), dev_m(std::vector<float>(p.size(), 0.0f)), dev_x(p.size());
    const DeviceArray<uint8_t> room(cuda::orthogonalise_bytes(c.rows, c.cols));
    for (uint64_t t = 0; t < 2; ++t) {
        auto u = selftest_values(n, 61 + t);
        for (size_t i = 3; i < u.size(); i += 7) {
            u[i] = i % 2 == 0 ? 0.0f : u[i] * 1e-30f;
        }
        rule->begin(kLr);
        rule->update(0, 0, n, u.data(), kScale);
        const DeviceArray<float> dev_u(u);
        const float              keep = 1.0f - kLr * kDecay;
        if (c.kind != ParamKind::matrix) {
            cuda::nesterov_sign(nullptr, n, {kScale, kMomentum, keep, kLr}, dev_u, dev_m, dev_p);
            continue;
        }
        cuda::nesterov(nullptr, n, kScale, kMomentum, dev_u, dev_m, dev_x);
        const float * x = cuda::orthogonalise(nullptr, c.rows, c.cols, c.n_steps, dev_x, room);
        cuda::sgd(nullptr, n, keep, kLr * muon_growth(tensor), x, dev_p);
    }
    OptimizerState state;
    rule->add_state(state, true);
    const std::span<float> m = state.tensors[0].values;
    table.same(name, dev_p.get(), p);
    table.same(name + " momentum", dev_m.get(), {m.begin(), m.end()});
}

}  // namespace

void selftest_cuda_muon(SelftestTable & table) {
    std::vector<MuonCase> cases = {{5, 19, 1}, {19, 5, 1}, {300, 1, 0, ParamKind::vector}};
    if (!table.small()) {
        const std::vector<MuonCase> full = {{1, 9, 5},    {9, 1, 5},    {64, 64, 1}, {66, 130, 2},
                                            {130, 66, 2}, {33, 300, 5}, {70, 40, 5}};
        cases.insert(cases.end(), full.begin(), full.end());
    }
    for (const MuonCase & c : cases) {
        const std::string name = format("muon %lldx%lld", (long long) c.rows, (long long) c.cols);
        if (table.wants(name)) {
            test_muon(table, name, c);
        }
    }
}

}  // namespace gt
