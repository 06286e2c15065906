// Optimizers on a device and on the host: equal gradients give equal messages, weights and state, bit for
// bit. The device is the fake one; the kernels run in the emulator.
#include "ggml-train/cuda/table.h"
#include "ggml-train/device/backend.h"
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <ggml-backend.h>

using namespace gt;

namespace {

// Of each call of orthogonalise: the matrices. All devices of this process have the same kernels.
std::vector<int64_t> g_together;
cuda::Kernels        g_kernels;

float *
orthogonalise(cuda::Stream s, const cuda::Matrices & m, int n_steps, float * x, void * room) {
    g_together.push_back(m.count);
    return g_kernels.orthogonalise(s, m, n_steps, x, room);
}

// Forwards to a device and counts the bytes copied, and what is orthogonalised.
class CountingDevice : public Device {
public:
    explicit CountingDevice(Device & device) : device_(device) {}

    void * alloc(size_t bytes, const char * what) override { return device_.alloc(bytes, what); }
    void * scratch(size_t bytes) override { return device_.scratch(bytes); }
    void   read(void * host, const void * device, size_t bytes) override {
        n_read += bytes;
        device_.read(host, device, bytes);
    }
    void write(void * device, const void * host, size_t bytes) override {
        n_written += bytes;
        device_.write(device, host, bytes);
    }
    void                  wait() override { device_.wait(); }
    std::shared_ptr<void> access() override { return device_.access(); }
    const cuda::Kernels & kernels() const override {
        g_kernels               = device_.kernels();
        counting_               = g_kernels;
        counting_.orthogonalise = orthogonalise;
        return counting_;
    }

    size_t n_read = 0, n_written = 0;

private:
    Device &              device_;
    mutable cuda::Kernels counting_{};
};

// A rank's rows in host memory and in device memory, and an optimizer for each.
class Twins {
public:
    Twins(SimModel & model, const OptimOptions & options, int rank = 0, int n_ranks = 1)
        : options_(options), host_params(model.params(options, rank, n_ranks)),
          device_params(host_params) {
        for (ParamView & param : device_params) {
            const auto put = [&](std::span<float> & values) {
                auto * p = static_cast<float *>(device.alloc(values.size_bytes(), "a tensor"));
                Floats{{p, values.size()}, &device}.write(values);
                values = {p, values.size()};
            };
            put(param.weight);
            put(param.grad);
            param.device = &device;
        }
        on_host   = make_optimizer(options, host_params, workers);
        on_device = make_optimizer(options, device_params, workers);
    }

    // Call after the model's gradients have changed.
    void copy_gradients() {
        for (size_t t = 0; t < host_params.size(); ++t) {
            Floats{device_params[t].grad, &device}.write(host_params[t].grad);
        }
    }

    void check_equal() {
        for (size_t t = 0; t < host_params.size(); ++t) {
            INFO(host_params[t].name);
            const auto & w = host_params[t].weight;
            CHECK(same_bits(Floats{device_params[t].weight, &device}.read(), w));
        }
        const OptimizerState a = on_host->state(), b = on_device->state();
        REQUIRE(a.tensors.size() == b.tensors.size());
        for (size_t i = 0; i < a.tensors.size(); ++i) {
            INFO(a.tensors[i].name);
            CHECK(a.tensors[i].name == b.tensors[i].name);
            CHECK(a.tensors[i].shared == b.tensors[i].shared);
            CHECK(same_bits(b.tensors[i].floats().read(), a.tensors[i].values));
        }
        REQUIRE(a.counters.size() == b.counters.size());
        for (size_t i = 0; i < a.counters.size(); ++i) {
            CHECK(*a.counters[i].value == *b.counters[i].value);
        }
        REQUIRE(a.blobs.size() == b.blobs.size());
        for (size_t i = 0; i < a.blobs.size(); ++i) {
            CHECK(*a.blobs[i].bytes == *b.blobs[i].bytes);
        }
    }

    static bool same_bits(std::span<const float> a, std::span<const float> b) {
        return a.size() == b.size() &&
               (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
    }

    OptimOptions               options_;
    Backend                    backend{"fake", 1};
    CountingDevice             device{*backend.device()};
    Workers                    workers{1};
    std::vector<ParamView>     host_params, device_params;
    std::unique_ptr<Optimizer> on_host, on_device;
};

OptimOptions small_demo() {
    return {.replicator = "demo", .rule = "sgd", .chunk = "32x32", .top_k = 5};
}

// Of the sums of squares: each unit is cut into pieces.
size_t n_pieces(const OptimOptions & options, const std::vector<ParamView> & params) {
    int64_t n = 0;
    for (const ParamView & param : params) {
        const TensorShape shape = shape_of(param);
        const int64_t     step  = cut_rows(options, param);
        for (int64_t row = 0; row < shape.rows; row += step) {
            const int64_t size = std::min(step, shape.rows - row) * shape.cols;
            n += (size + cuda::kSquaresPiece - 1) / cuda::kSquaresPiece;
        }
    }
    return static_cast<size_t>(n);
}

}  // namespace

TEST_CASE("a_device_sends_the_messages_of_the_host_and_moves_the_same_weights", "[device]") {
    OptimOptions options = small_demo();
    SECTION("signs") {}
    SECTION("defaults") {
        options = {};
    }
    SECTION("adamw, other wire") {
        options.rule = "adamw";
        options.wire = "fp16";
    }
    SECTION("a round every second step, flat chunks, clipped messages") {
        options.every         = 2;
        options.chunk         = "256";
        options.clip_messages = 0.5f;
    }
    SimModel model, others;
    Twins    twins(model, options);
    Workers  workers(1);
    auto     other = make_optimizer(options, others.params(options), workers);
    for (uint64_t step = 0; step < 2; ++step) {
        model.set_gradients(0, step);
        others.set_gradients(1, step);
        twins.copy_gradients();
        const size_t n_read = twins.device.n_read, n_written = twins.device.n_written;
        const float  lr   = 0.01f * static_cast<float>(step + 1);
        const Bytes  want = twins.on_host->prepare(step, lr, {.loss_scale = 2.0f}).message;
        const Bytes  got  = twins.on_device->prepare(step, lr, {.loss_scale = 2.0f}).message;
        REQUIRE(got == want);
        CHECK(got.empty() == ((step + 1) % std::max<uint64_t>(1, options.every) != 0));
        Round round{.step = step, .has_mine = true};
        if (!got.empty()) {
            round.messages = {
                {"b", 3, other->prepare(step, lr).message}, {"a", 5, got}, {"invalid", 1, {1, 2}}};
        } else {
            (void) other->prepare(step, lr);
        }
        twins.on_host->apply(round);
        twins.on_device->apply(round);
        other->apply(round);
        // only messages cross: ours out, the round's in, a few bytes per tensor, and the sums of squares
        // with the table of what to sum
        const size_t content = got.empty() ? 0 : got.size() - kHeadBytes;
        const auto   n_sums  = static_cast<size_t>(grad_norm_parts(options, twins.device_params));
        CHECK(
            twins.device.n_read - n_read ==
            content + n_pieces(options, twins.device_params) * sizeof(double)
        );
        CHECK(
            twins.device.n_written - n_written <=
            2 * content + 24 * 2 * 6 + n_sums * sizeof(cuda::Span)
        );
        twins.check_equal();
    }
}

// Steps of both: own messages alone, one of them late, then with another host.
TEST_CASE("every_replicator_on_a_device_does_what_it_does_on_the_host", "[device]") {
    OptimOptions options{.replicator = "loco"};
    SECTION("loco") {}
    SECTION("loco, sgd without correction") {
        options.rule = "sgd";
    }
    SECTION("loco with overlap") {
        options.overlap = 1;
    }
    SECTION("loco, three fragments, every second step, outer momentum") {
        options.fragments      = 3;
        options.every          = 2;
        options.outer_momentum = 0.6f;
    }
    SECTION("loco in other wire types") {
        options.wire = GENERATE("fp32", "fp16", "q8", "q4", "q2");
    }
    SECTION("diloco") {
        options = {.replicator = "diloco", .every = 2};
    }
    SECTION("diloco, restored norm, overlap") {
        options = {
            .replicator   = "diloco",
            .rule         = "muon",
            .wire         = "q4",
            .every        = 2,
            .restore_norm = "on",
            .overlap      = 1};
    }
    SECTION("sparseloco") {
        options = {.replicator = "sparseloco", .every = 2};
    }
    SECTION("sparseloco, flat chunks") {
        options = {.replicator = "sparseloco", .wire = "q4", .chunk = "128", .every = 2};
    }
    SECTION("rows of the momentum") {
        options.replicator = GENERATE("random", "striding", "slicing");
        options.rate       = 0.3f;
    }
    SECTION("rows of the momentum, signs") {
        options = {.replicator = "random", .rule = "sgd", .wire = "q1", .every = 2};
    }
    SECTION("full") {
        options = {.replicator = "full"};
    }
    SECTION("in shares") {
        options.replicator = GENERATE("loco", "demo", "random", "sparseloco");
        options.every      = 1;
        options.shares     = 3;
    }
    SimModel          model, others;
    Twins             twins(model, options);
    Workers           workers(1);
    auto              other = make_optimizer(options, others.params(options), workers);
    Round             travelling{.step = 0};
    Optimizer * const both[] = {twins.on_host.get(), twins.on_device.get()};
    for (uint64_t step = 0; step < 10; ++step) {
        INFO("step " << step);
        model.set_gradients(0, step);
        others.set_gradients(1, step);
        twins.copy_gradients();
        const size_t n_read = twins.device.n_read, n_written = twins.device.n_written;
        const Bytes  want = twins.on_host->prepare(step, 0.1f).message;
        REQUIRE(twins.on_device->prepare(step, 0.1f).message == want);
        Bytes from_other = other->prepare(step, 0.1f).message;
        Round round{.step = step, .has_mine = true};
        if (!want.empty()) {
            round.messages = {{"a", 3, want}};
        }
        if (step == 3 || step == 7) {  // our message missed the commit
            round.has_mine = false;
            round.messages.clear();
        }
        if (step > 4 && !want.empty()) {
            round.messages.push_back({"b", 5, from_other});
        }
        Round due = options.overlap > 0 ? travelling : round;
        if (options.shares > 0 && !due.messages.empty()) {
            due = Shares(options, others.params(options)).mean_round(due, 3);
        }
        for (Optimizer * optimizer : both) {
            if (!due.has_mine && due.step > 0) {
                optimizer->take_back(due.step);
            }
            optimizer->apply(due);
        }
        other->apply(due);
        // only messages cross, ours and the round's, and tables of what they are about
        const size_t content = want.empty() ? 0 : want.size() - kHeadBytes;
        const size_t sums    = n_pieces(options, twins.device_params) * sizeof(double);
        CHECK(twins.device.n_read - n_read == content + sums);
        size_t received = want.size();  // a message that is taken back, too
        for (const Message & message : due.messages) {
            received += message.bytes.size();
        }
        for (const auto & weight : model.weight) {  // means are decoded on the host
            received += due.in_shares ? weight.size() * sizeof(float) : 0;
        }
        CHECK(twins.device.n_written - n_written < received + 16'000);
        twins.check_equal();
        travelling = round;
    }
}

TEST_CASE("values_that_every_host_refuses_change_a_device_as_they_change_the_host", "[device]") {
    OptimOptions options{.replicator = GENERATE("loco", "diloco", "random"), .every = 1};
    SimModel     model;
    Twins        twins(model, options);
    const float  lr = GENERATE(1e35f, 1e-35f);  // too large for a message, and all rounded to zero
    for (uint64_t step = 0; step < 2; ++step) {
        model.set_gradients(0, step);
        twins.copy_gradients();
        const Bytes want = twins.on_host->prepare(step, lr).message;
        REQUIRE(twins.on_device->prepare(step, lr).message == want);
        for (Optimizer * optimizer : {twins.on_host.get(), twins.on_device.get()}) {
            step == 0 ? optimizer->take_back(step) : optimizer->drop_residual();
        }
        twins.check_equal();
    }
}

TEST_CASE("a_device_takes_back_a_message_that_missed_the_commit", "[device]") {
    SimModel model;
    Twins    twins(model, small_demo());
    for (uint64_t step = 0; step < 2; ++step) {
        model.set_gradients(0, step);
        twins.copy_gradients();
        REQUIRE(
            twins.on_device->prepare(step, 0.1f).message ==
            twins.on_host->prepare(step, 0.1f).message
        );
        twins.on_host->take_back(step);
        twins.on_device->take_back(step);
        twins.check_equal();
    }
}

TEST_CASE("parts_of_ranks_on_devices_join_to_the_message_of_a_single_rank", "[device]") {
    OptimOptions options = small_demo();
    int          n_ranks = 2;
    SECTION("signs") {}
    SECTION("defaults") {
        options = {.replicator = GENERATE("demo", "loco", "random", "sparseloco"), .every = 1};
        n_ranks = GENERATE(2, 3, 4);
    }
    SimModel                            model, whole;
    Workers                             workers(1);
    std::vector<std::unique_ptr<Twins>> ranks;
    for (int r = 0; r < n_ranks; ++r) {
        ranks.push_back(std::make_unique<Twins>(model, options, r, n_ranks));
    }
    auto alone = make_optimizer(options, whole.params(options), workers);
    for (uint64_t step = 0; step < 2; ++step) {
        model.set_gradients(0, step);
        whole.set_gradients(0, step);
        const Bytes        want = alone->prepare(step, 0.1f).message;
        Round              round{.step = step, .has_mine = true};
        std::vector<Bytes> parts;
        for (const auto & twins : ranks) {
            twins->copy_gradients();
            parts.push_back(twins->on_device->prepare(step, 0.1f).message);
            CHECK(parts.back() == twins->on_host->prepare(step, 0.1f).message);
        }
        REQUIRE(join_parts(parts) == want);
        round.messages = {{"a", 1, want}};
        alone->apply(round);
        for (const auto & twins : ranks) {
            twins->on_host->apply(round);
            twins->on_device->apply(round);
            twins->check_equal();
        }
    }
    CHECK(model.weight == whole.weight);
}

TEST_CASE("a_device_without_peers_makes_the_steps_of_the_host", "[device]") {
    OptimOptions options{.replicator = "none"};
    SECTION("adamw") {}
    SECTION("sgd") {
        options.rule = "sgd";
    }
    SECTION("signs") {
        options.rule = "sgd";
        options.sign = "on";
    }
    SECTION("adamw, moments of 8 bits") {
        options.rule    = "adamw";
        options.moments = "q8";
    }
    SECTION("muon") {
        options.rule = "muon";
    }
    SECTION("muon without momentum") {
        options.rule          = "muon";
        options.muon_momentum = 0.0f;
    }
    SimModel model;
    Twins    twins(model, options);
    for (uint64_t step = 0; step < 2; ++step) {
        model.set_gradients(0, step);
        twins.copy_gradients();
        const Prepared got  = twins.on_device->prepare(step, 0.1f, {.loss_scale = 2.0f});
        const Prepared want = twins.on_host->prepare(step, 0.1f, {.loss_scale = 2.0f});
        CHECK(got.message.empty());
        CHECK(got.grad_norm == want.grad_norm);
        twins.on_device->apply({.step = step});
        twins.check_equal();
    }
}

TEST_CASE("equal_matrices_are_orthogonalised_together", "[device]") {
    std::vector<SimShape> shapes;
    for (const char * layer : {"0.", "1.", "2.", "3."}) {
        shapes.push_back({layer + std::string("in"), {24, 40, 1, 1}, ParamKind::matrix});
        shapes.push_back({layer + std::string("bias"), {24, 1, 1, 1}, ParamKind::vector});
        shapes.push_back({layer + std::string("out"), {40, 24, 1, 1}, ParamKind::matrix});
    }
    shapes.push_back({"other", {24, 41, 1, 1}, ParamKind::matrix});
    shapes.push_back({"table", {24, 40, 1, 1}, ParamKind::embedding});
    const OptimOptions options{.replicator = GENERATE("none", "random"), .rule = "muon"};
    SimModel           model(shapes);
    Twins              twins(model, options);
    for (uint64_t step = 0; step < 2; ++step) {
        model.set_gradients(0, step);
        twins.copy_gradients();
        g_together.clear();
        Round round{.step = step, .has_mine = true};
        for (Optimizer * optimizer : {twins.on_host.get(), twins.on_device.get()}) {
            round.messages = {{"a", 1, optimizer->prepare(step, 0.1f).message}};
            optimizer->apply(round);
        }
        CHECK(g_together == std::vector<int64_t>{4, 4, 1});
        twins.check_equal();
    }
}

TEST_CASE("every_replicator_has_kernels_but_for_few_settings", "[device]") {
    for (const char * name :
         {"demo", "random", "striding", "slicing", "full", "diloco", "sparseloco", "loco",
          "none"}) {
        CHECK(has_kernels({.replicator = name}));
    }
    CHECK_FALSE(has_kernels({.replicator = "demo", .subtract = 0.2f}));
    CHECK_FALSE(has_kernels({.replicator = "sparseloco", .wire = "q1"}));
    CHECK_FALSE(has_kernels({.replicator = "sparseloco", .chunk = "128x128"}));
    CHECK(has_kernels({.replicator = "loco", .chunk = "128x128"}));
}

TEST_CASE("a_full_device_says_how_much_was_asked_for", "[device]") {
    const Backend backend("fake:0:1", 1);
    CHECK_THROWS_WITH(
        backend.device()->alloc(2'000'000, "the momentum"),
        "out of memory: 2.0 MB for the momentum on FAKE0; take a smaller model, or --shard full "
        "over "
        "more devices"
    );
}
