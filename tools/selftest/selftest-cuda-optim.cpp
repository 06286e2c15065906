// tools/selftest/selftest-cuda-optim.cpp — whole optimizers on the device against those in host memory, bit for
// bit: messages, weights and state. Compiled with -ffp-contract=off.
#include "ggml-train/cuda/table.h"
#include "optim/optim.h"
#include "tools/selftest/selftest-cuda.h"

#include <numeric>

namespace gt {

namespace {

// The selected device, without ggml.
class SelftestDevice : public Device {
public:
    ~SelftestDevice() override {
        wait();
        for (void * p : memory_) {
            cuda::free(p);
        }
    }
    void * alloc(size_t bytes, const char *) override {
        memory_.push_back(cuda::alloc(std::max<size_t>(bytes, 1)));
        cuda::set_zero(nullptr, memory_.back(), bytes);
        return memory_.back();
    }
    void * scratch(size_t bytes) override { return alloc(bytes, "scratch"); }
    void   read(void * host, const void * at, size_t bytes) override {
        cuda::copy_out(nullptr, host, at, bytes);
        wait();
    }
    void write(void * at, const void * host, size_t bytes) override {
        cuda::copy_in(nullptr, at, host, bytes);
        wait();
    }
    void                  wait() override { cuda::synchronize(nullptr); }
    std::shared_ptr<void> access() override { return nullptr; }
    const cuda::Kernels & kernels() const override { return cuda::kernels(); }

private:
    std::vector<void *> memory_;
};

// A model's weights and gradients, in host memory and on the device.
struct Model {
    explicit Model(Device & device) {
        // an embedding of two bands, a matrix, a vector; rows with groups of one size and of several
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
            view.device = &device;
            for (std::span<float> * values : {&view.weight, &view.grad}) {
                *values = {static_cast<float *>(device.alloc(n * sizeof(float), "")), n};
            }
            on_device.push_back(view);
            Floats{view.weight, &device}.write(weight.back());
        };
        weight.reserve(3);
        grad.reserve(3);
        add("embedding", 33, 80, ParamKind::embedding);
        add("matrix", 70, 65, ParamKind::matrix);
        add("vector", 300, 1, ParamKind::vector);
    }

    void set_gradients(uint64_t seed) {
        for (size_t t = 0; t < grad.size(); ++t) {
            const auto values = selftest_values(static_cast<int64_t>(grad[t].size()), seed + t);
            std::copy(values.begin(), values.end(), grad[t].begin());
            Floats{on_device[t].grad, on_device[t].device}.write(grad[t]);
        }
    }

    std::vector<std::vector<float>> weight, grad;
    std::vector<ParamView>          on_host, on_device;
};

// Three rounds with another host; the second misses our message.
void test_optimizer(SelftestTable & table, const std::string & name, const OptimOptions & options) {
    SelftestDevice device;
    Model          model(device), others(device);
    Workers        workers(1);
    const auto     host  = make_optimizer(options, model.on_host, workers);
    const auto     other = make_optimizer(options, others.on_host, workers);
    const auto     ours  = make_optimizer(options, model.on_device, workers);
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

}  // namespace

void selftest_cuda_optim(SelftestTable & table) {
    using Case        = std::pair<const char *, OptimOptions>;
    const Case small  = {"loco", {.replicator = "loco", .fragments = 2}};
    const Case full[] = {
        {"loco, overlap, q4",
         {.replicator = "loco", .wire = "q4", .fragments = 2, .overlap = true}},
        {"diloco", {.replicator = "diloco", .every = 1}},
        {"sparseloco", {.replicator = "sparseloco", .chunk = "32x32", .every = 1}},
        {"random, q2", {.replicator = "random", .wire = "q2", .rate = 0.4f}},
        {"striding", {.replicator = "striding", .rule = "sgd", .rate = 0.4f}},
        {"full", {.replicator = "full"}},
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
