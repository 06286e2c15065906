// tools/selftest/selftest-cuda-optim.cpp — whole optimizers on the device against those in host memory, bit for
// bit: messages, weights and state. Compiled with -ffp-contract=off.
#include "optim/tables.h"
#include "tools/selftest/selftest-cuda.h"
#include "tools/selftest/selftest-gpu.h"

#include <algorithm>
#include <cmath>

namespace gt {

namespace {

// A model's weights and gradients, in host memory and, unless it is null, on the device.
struct Model {
    Model(Device * device, bool small) {
        // an embedding of two bands, a matrix, a vector; rows with groups of one size and of several. Small: at
        // most 8128 threads in a launch, TSan's limit
        const auto add = [&](const char * name, int64_t cols, int64_t rows, ParamKind kind) {
            const auto n = static_cast<size_t>(cols * rows);
            weight.push_back(selftest_values(cols * rows, 70 + weight.size(), 0.1f));
            grad.emplace_back(n);
            ParamView view{.name = name, .ne = {cols, rows, 1, 1}, .kind = kind};
            if (kind == ParamKind::vector) {
                view.ne = {cols, 1, 1, 1};
            }
            view.row_end = kind == ParamKind::vector ? cols : rows;
            view.weight  = weight.back();
            view.grad    = grad.back();
            on_host.push_back(view);
            if (!device) {
                return;
            }
            view.device = device;
            for (std::span<float> * values : {&view.weight, &view.grad}) {
                *values = {static_cast<float *>(device->alloc(n * sizeof(float), "")), n};
            }
            on_device.push_back(view);
            Floats{view.weight, device}.write(weight.back());
        };
        weight.reserve(3);
        grad.reserve(3);
        add("embedding", 33, small ? 20 : 80, ParamKind::embedding);
        add("matrix", 70, 12, ParamKind::matrix);
        add("vector", 300, 1, ParamKind::vector);
    }

    void set_gradients(uint64_t seed) {
        for (size_t t = 0; t < grad.size(); ++t) {
            const auto values = selftest_values(static_cast<int64_t>(grad[t].size()), seed + t);
            std::copy(values.begin(), values.end(), grad[t].begin());
            if (!on_device.empty()) {
                Floats{on_device[t].grad, on_device[t].device}.write(grad[t]);
            }
        }
    }

    std::vector<std::vector<float>> weight, grad;
    std::vector<ParamView>          on_host, on_device;
};

// Three rounds with another host; the second misses our message.
void test_optimizer(SelftestTable & table, const std::string & name, const OptimOptions & options) {
    SelftestGpu device(cuda::current_device());
    Model       model(&device, table.small()), others(nullptr, table.small());
    Workers     workers(1);
    const auto  host  = make_optimizer(options, model.on_host, workers);
    const auto  other = make_optimizer(options, others.on_host, workers);
    const auto  ours  = make_optimizer(options, model.on_device, workers);
    for (uint64_t step = 0; step < (table.small() ? 1 : 3); ++step) {
        model.set_gradients(80 + 10 * step);
        others.set_gradients(85 + 10 * step);
        const Bytes message = host->prepare(step, 0.02f).message;
        table.same(name + " message", ours->prepare(step, 0.02f).message, message);
        Round round{.step = step, .has_mine = step != 1};
        round.messages = {{"b", 3, other->prepare(step, 0.02f).message}};
        if (round.has_mine) {
            round.messages.push_back({"a", 5, message});
        }
        for (Optimizer * optimizer : {host.get(), ours.get()}) {
            if (!round.has_mine) {
                optimizer->take_back(step);
            }
            optimizer->apply(round);
        }
        other->apply(round);
        std::vector<float> want, got;
        const auto         add = [](std::vector<float> & to, const std::vector<float> & values) {
            to.insert(to.end(), values.begin(), values.end());
        };
        for (size_t t = 0; t < model.weight.size(); ++t) {
            add(want, model.weight[t]);
            add(got, Floats{model.on_device[t].weight, &device}.read());
        }
        table.same(name + " weights", got, want);
        want.clear();
        got.clear();
        const OptimizerState host_state = host->state(), our_state = ours->state();
        for (size_t i = 0; i < host_state.tensors.size(); ++i) {
            add(want, host_state.tensors[i].floats().read());
            add(got, our_state.tensors[i].floats().read());
        }
        table.same(name + " state", got, want);
    }
}

// A vector's groups with all that a group may hold: what is sent, what is left, what is given back.
void test_rows(SelftestTable & table, const std::string & name, Wire wire) {
    const int64_t n = table.small() ? 300 : 9 * dense_group(wire) + 5, group = dense_group(wire);
    auto          x = selftest_values(n, 90);
    for (int64_t i = 0; i < n; ++i) {
        const int64_t which = i / group;
        x[i]                = which == 1   ? x[i] * 1e-38f  // below what is sent
                              : which == 2 ? -0.0f
                              : which == 3 ? std::clamp(x[i], -1.0f, 1.0f) * 0x1p28f
                              : which == 4 ? 0.5f
                                           : x[i];
    }
    const auto at = [&](int64_t which) -> float & { return x[std::min(n - 1, which * group + 3)]; };
    at(3)         = 0x1p30f;
    at(5)         = NAN;
    at(6)         = -INFINITY;
    at(7)         = 0x1.000002p30f;
    at(8)         = 1e-40f;
    const TensorShape shape{.name = "w", .rows = n, .kind = ParamKind::vector, .is_vector = true};
    const auto        rows = make_dense({}, {shape}, wire);
    const Plan        plan = rows->plan(0);
    const Unit        unit{0, 0, n};

    const DeviceArray<float>         dev_x(x);
    const DeviceArray<cuda::RowUnit> dev_unit(std::vector<cuda::RowUnit>{{.n = n, .row = n}});
    const cuda::Rows                 on_device{
                        .units    = dev_unit,
                        .n_units  = 1,
                        .wire     = static_cast<int32_t>(wire),
                        .n_groups = (n + group - 1) / group};
    Bytes                      message(static_cast<size_t>(rows->bytes(plan, unit)));
    const DeviceArray<uint8_t> dev_message(message.size());
    rows->extract(plan, unit, {}, x.data(), message.data());
    cuda::rows_extract(nullptr, on_device, dev_x, dev_message);
    table.same(name + " message", dev_message.get(), message);
    std::vector<float> left = dev_x.get();
    for (size_t i = 0; i < x.size(); ++i) {  // a NaN may have any bits
        x[i]    = std::isnan(x[i]) ? 0.0f : x[i];
        left[i] = std::isnan(left[i]) ? 0.0f : left[i];
    }
    table.same(name + " left", left, x);
    // of a message that is valid
    auto y = selftest_values(n, 91);
    y[0]   = -0.0f;
    const DeviceArray<float> dev_y(y);
    for (int i = 0; i < 2; ++i) {
        rows->extract(plan, unit, {}, y.data(), message.data());
        cuda::rows_extract(nullptr, on_device, dev_y, dev_message);
        rows->give_back(plan, unit, message.data(), y.data());
        cuda::rows_give_back(nullptr, on_device, dev_message, dev_y);
        table.same(name + " given back", dev_y.get(), y);
    }
}

}  // namespace

void selftest_cuda_optim(SelftestTable & table) {
    for (const Wire wire : {Wire::fp32, Wire::fp16, Wire::q8, Wire::q4, Wire::q2, Wire::q1}) {
        const std::string name = format("rows, wire %d", static_cast<int>(wire));
        if (table.wants(name)) {
            test_rows(table, name, wire);
        }
    }
    using Case        = std::pair<const char *, OptimOptions>;
    const Case small  = {"loco", {.replicator = "loco", .fragments = 2}};
    const Case full[] = {
        {"loco, overlap, q4",
         {.replicator = "loco", .rule = "sgd", .wire = "q4", .fragments = 2, .overlap = true}},
        {"diloco", {.replicator = "diloco", .every = 1}},
        {"sparseloco", {.replicator = "sparseloco", .chunk = "32x32", .every = 1}},
        {"random, q2", {.replicator = "random", .rule = "sgd", .wire = "q2", .rate = 0.4f}},
        {"striding", {.replicator = "striding", .rate = 0.4f}},
        {"full", {.replicator = "full"}},
        {"full, q8 moments", {.replicator = "full", .moments = "q8"}},
    };
    std::vector<Case> cases = {small};
    if (!table.small()) {
        cases.insert(cases.end(), std::begin(full), std::end(full));
    }
    for (const auto & [name, options] : cases) {
        const std::string text = std::string("optimizer ") + name;
        if (table.wants(text)) {
            test_optimizer(table, text, options);
        }
    }
}

}  // namespace gt
