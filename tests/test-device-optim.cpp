// Optimizers on a device against those on the host: the same gradients give the same messages, byte for
// byte, and the same weights and state, bit for bit. The device is the fake one, the kernels run under
// the emulator.
#include "ggml-train/backend.h"
#include "tests/catch.h"
#include "tests/optim-sim.h"

#include <ggml-backend.h>

using namespace gt;

namespace {

// Forwards to a device and counts what crosses.
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
    void                  lend(const std::function<void()> & fn) override { device_.lend(fn); }
    const cuda::Kernels & kernels() const override { return device_.kernels(); }

    size_t n_read = 0, n_written = 0;

private:
    Device & device_;
};

// A rank of a host: its rows on the host and, the same, on a device; an optimizer for each.
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

    // After the model's gradients have changed.
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

}  // namespace

TEST_CASE("a_device_sends_the_messages_of_the_host_and_moves_the_same_weights", "[device]") {
    OptimOptions options = small_demo();
    SECTION("signs") {}
    SECTION("as it is by default") {
        options = {};
    }
    SECTION("adamw, other wire") {
        options.rule = "adamw";
        options.wire = "fp16";
    }
    SECTION("a round every second step, flat chunks, norms made equal") {
        options.every       = 2;
        options.chunk       = "256";
        options.median_norm = true;
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
        const Bytes  want = twins.on_host->prepare(step, lr, 0.7f);
        const Bytes  got  = twins.on_device->prepare(step, lr, 0.7f);
        REQUIRE(got == want);
        CHECK(got.empty() == ((step + 1) % std::max<uint64_t>(1, options.every) != 0));
        Round round{.round = step, .has_mine = true};
        if (!got.empty()) {
            round.messages = {
                {"b", 3, other->prepare(step, lr, 1.0f)}, {"a", 5, got}, {"rubbish", 1, {1, 2}}};
        } else {
            (void) other->prepare(step, lr, 1.0f);
        }
        twins.on_host->apply(round);
        twins.on_device->apply(round);
        other->apply(round);
        // nothing but messages crosses: ours out, the round's in, and a few words for each tensor
        const size_t content = got.empty() ? 0 : got.size() - kHeadBytes;
        CHECK(twins.device.n_read - n_read == content);
        CHECK(twins.device.n_written - n_written <= 2 * content + 24 * 2 * 6);
        twins.check_equal();
    }
}

TEST_CASE("a_device_takes_back_what_was_left_out", "[device]") {
    SimModel model;
    Twins    twins(model, small_demo());
    for (uint64_t step = 0; step < 2; ++step) {
        model.set_gradients(0, step);
        twins.copy_gradients();
        REQUIRE(
            twins.on_device->prepare(step, 0.1f, 1.0f) == twins.on_host->prepare(step, 0.1f, 1.0f)
        );
        twins.on_host->take_back(step);
        twins.on_device->take_back(step);
        twins.check_equal();
    }
}

TEST_CASE("ranks_on_devices_make_the_message_of_one_host", "[device]") {
    OptimOptions options = small_demo();
    int          n_ranks = 2;
    SECTION("signs") {}
    SECTION("as it is by default") {
        options = {};
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
        const Bytes        want = alone->prepare(step, 0.1f, 1.0f);
        Round              round{.round = step, .has_mine = true};
        std::vector<Bytes> parts;
        for (const auto & twins : ranks) {
            twins->copy_gradients();
            parts.push_back(twins->on_device->prepare(step, 0.1f, 1.0f));
            CHECK(parts.back() == twins->on_host->prepare(step, 0.1f, 1.0f));
        }
        REQUIRE(join_messages(parts) == want);
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

TEST_CASE("a_device_without_peers_steps_as_the_host_does", "[device]") {
    OptimOptions options{.replicator = "none"};
    SECTION("adamw") {}
    SECTION("sgd") {
        options.rule = "sgd";
    }
    SECTION("signs") {
        options.rule = "sgd";
        options.sign = "on";
    }
    SECTION("muon") {
        options.rule = "muon";
    }
    SECTION("muon without a momentum") {
        options.rule          = "muon";
        options.muon_momentum = 0.0f;
    }
    SimModel model;
    Twins    twins(model, options);
    for (uint64_t step = 0; step < 2; ++step) {
        model.set_gradients(0, step);
        twins.copy_gradients();
        CHECK(
            grad_norm(options, twins.device_params, twins.workers) ==
            grad_norm(options, twins.host_params, twins.workers)
        );
        CHECK(twins.on_device->prepare(step, 0.1f, 0.5f).empty());
        (void) twins.on_host->prepare(step, 0.1f, 0.5f);
        twins.on_device->apply({.round = step});
        twins.check_equal();
    }
}

TEST_CASE("what_has_kernels_is_said_before_it_is_tried", "[device]") {
    CHECK(has_kernels({.replicator = "demo", .rule = "sgd"}));
    CHECK(has_kernels({}));
    CHECK(has_kernels({.replicator = "none"}));
    CHECK(has_kernels({.replicator = "full", .alone = true}));
    CHECK_FALSE(has_kernels({.replicator = "full"}));
    CHECK_FALSE(has_kernels({.replicator = "diloco"}));
    CHECK_FALSE(has_kernels({.replicator = "random"}));
}

TEST_CASE("devices_are_named_as_the_flag_says", "[device]") {
    const auto names = [](const std::string & text) {
        std::string all;
        for (const DeviceSpec & device : parse_devices(text)) {
            all += device.name() + " ";
        }
        return all;
    };
    CHECK(names("cpu") == "cpu:0 ");
    CHECK(names("fake") == "fake:0 ");
    CHECK(names("fake:2") == "fake:0 fake:1 ");
    CHECK(parse_devices("fake:2:64")[1].limit == 64'000'000);
    CHECK(names("cuda") == "cuda:0 ");
    CHECK(names("cuda:1,cuda:0") == "cuda:1 cuda:0 ");
    for (const char * wrong :
         {"", "gpu", "fake:0", "fake:x", "fake:2:", "cuda:", "cuda:0,", "cuda:-1"}) {
        INFO(wrong);
        CHECK_THROWS_AS(parse_devices(wrong), Error);
    }
}

TEST_CASE("a_full_device_says_how_much_was_asked_for", "[device]") {
    const Backend backend("fake:1:1", 1);
    CHECK_THROWS_WITH(
        backend.device()->alloc(2'000'000, "the momentum"),
        "out of memory: 2.0 MB for the momentum on FAKE0; take a smaller model, or --shard full "
        "over "
        "more devices"
    );
}
