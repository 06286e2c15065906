// Ranks of one host at their limits: what fits into the memory of each, and that one which fails ends all.
#include "tests/tools/ranks-fixture.h"
#include "tools/train/cost.h"

using namespace gt;

// --- memory ----------------------------------------------------------------------------------------

static ModelConfig wide() {
    ModelConfig config = small("gpt2", 12);
    config.n_embd      = 64;
    config.n_ff        = 256;
    return config;
}

TEST_CASE("streamed_ranks_divide_weights_gradients_and_state_between_them") {
    const ModelConfig config = wide();
    const ModelFile   model  = some_model(config);
    SomeData          data(config);
    double            alone = 0.0;
    for (const int n_ranks : {1, 2, 3, 4}) {
        RunPlan f     = some_plan(n_ranks, "full", 4, 1);
        f.optim.chunk = "16x16";
        Recorder peers;
        run_ranks(n_ranks, [&](LocalGroup & ranks) {
            const TrainRank  rank(f, model, data, ranks, peers);
            const RankMemory memory = rank.memory();
            on_first(ranks, [&] {
                const auto bytes = static_cast<double>(memory.weights + memory.state);
                alone            = n_ranks == 1 ? bytes : alone;
                INFO(n_ranks << " ranks: " << bytes << " of " << alone);
                CHECK(bytes < 1.1 * alone / n_ranks);
            });
        });
    }
    CHECK(alone >= 16.0 * static_cast<double>(n_params(config)));  // two of them, and two moments
}

TEST_CASE("a_model_beyond_the_memory_of_a_rank_trains_when_ranks_stream_it", "[device]") {
    const ModelConfig config = wide();
    RunPlan           f      = some_plan(4, "full", 4, 1);
    f.optim.chunk            = "16x16";
    f.device                 = "fake:0:4";  // each rank has one of 4 MB
    f.portable               = true;
    REQUIRE(16 * n_params(config) > 2 * (4 << 20));
    const Trained under = train(config, f, 2);

    f.device           = "cpu";
    const Trained free = train(config, f, 2);
    CHECK(under.losses == free.losses);
    CHECK(under.norms == free.norms);
    CHECK(farthest(under, free) == 0.0);

    f.device = "fake:0:4";
    f.shard  = "optimizer";
    try {
        train(config, f, 1);
        FAIL("it fits, so nothing is proven");
    } catch (const Error & error) {
        INFO(error.what());
        CHECK(std::string(error.what()).find("out of memory") != std::string::npos);
        CHECK(std::string(error.what()).find("--shard full") != std::string::npos);
    }
}

TEST_CASE("sharding_and_micro_batch_follow_from_the_memory_of_a_rank", "[device]") {
    const ModelFile model = some_model(wide());
    SomeData        data(wide());
    const auto      fitted = [&](int n_ranks, const char * device, bool given) {
        RunPlan f           = some_plan(n_ranks, "auto", 64, given ? 16 : 0);
        f.device            = device;
        f.optim.chunk       = "16x16";
        f.micro             = f.micro ? f.micro : f.batch;
        const MemoryFit fit = fit_memory(f, model.config, given);
        f.shard             = fit.shard;
        f.micro             = fit.micro;
        return f;
    };
    CHECK(fitted(1, "cpu", false).shard == "none");
    CHECK(fitted(4, "cpu", false).shard == "optimizer");
    CHECK(fitted(4, "cpu", false).micro == 16);
    CHECK(fitted(4, "fake:0:60", false).shard == "optimizer");
    const RunPlan less = fitted(4, "fake:0:10", false);
    CHECK(less.shard == "optimizer");
    CHECK(less.micro < 16);
    const RunPlan little = fitted(4, "fake:0:5", false);
    CHECK(little.shard == "full");
    CHECK(fitted(4, "fake:0:5", true).micro == 16);  // a person's word

    // what was promised is what is taken
    for (const RunPlan & f : {less, little}) {
        Recorder peers;
        run_ranks(4, [&](LocalGroup & ranks) {
            const TrainRank  rank(f, model, data, ranks, peers);
            const RankMemory memory = rank.memory();
            on_first(ranks, [&] {
                const size_t taken =
                    memory.weights + memory.state + memory.window + memory.activations;
                const double plan = MemoryPlan(f, model.config, form_of(f)).need(f.shard, f.micro);
                INFO(f.shard << ", micro " << f.micro << ": " << taken << " of " << plan);
                CHECK(static_cast<double>(taken) < 1.05 * plan);
                CHECK(static_cast<double>(taken) > 0.6 * plan);
            });
        });
    }
}

// Weights, copies in bf16, activations of steps and validations, state, muon's matrices: no more than was planned, and
// not much less.
TEST_CASE("a_device_needs_the_memory_that_was_planned", "[device]") {
    ModelConfig config = wide();
    config.n_embd      = 128;
    config.n_ff        = 512;
    for (const auto & [replicator, rule] :
         {std::pair("none", "adamw"), std::pair("none", "muon"), std::pair("loco", "muon")}) {
        for (const char * compute : {"f32", "bf16"}) {
            RunPlan f          = some_plan(1, "none", 16, 16);
            f.optim.replicator = replicator;
            f.optim.rule       = rule;
            f.compute          = compute;
            const double plan  = MemoryPlan(f, config, Form::device).need("none", 16);
            const auto   start = [&](double bytes) {
                f.device = format("fake:0:%.0f", bytes / 1e6);
                train(config, f, 0);
            };
            INFO(replicator << ", " << rule << ", " << compute << ": " << plan);
            CHECK_NOTHROW(start(1.03 * plan));
            CHECK_THROWS_WITH(start(0.95 * plan), ContainsSubstring("out of memory"));
        }
    }
}

TEST_CASE("moments_of_8_bits_count_as_a_quarter_in_the_plan") {
    const ModelConfig config = wide();
    RunPlan           f      = some_plan(1, "none", 1, 1);
    const double      floats = MemoryPlan(f, config, Form::device).need("none", 1);
    f.optim.moments          = "q8";
    const double codes       = MemoryPlan(f, config, Form::device).need("none", 1);
    double saved = 0.0;  // of two moments: 3 bytes a weight, but for a scale every 256 of a row
    for (const ParamView & param : param_shapes(tensor_specs(config))) {
        const int64_t cols = param.ne[0], rows = param.ne[1] * param.ne[2] * param.ne[3];
        if (param.kind != ParamKind::vector) {
            saved += static_cast<double>(2 * rows * (3 * cols - 4 * ((cols + 255) / 256)));
        }
    }
    CHECK(floats - codes == Approx(saved).epsilon(1e-3));
}

TEST_CASE("activations_are_recomputed_if_nothing_else_fits", "[device]") {
    const ModelConfig config = wide();
    RunPlan           f      = some_plan(1, "none", 16, 16);
    f.optim.chunk            = "16x16";
    const double kept        = MemoryPlan(f, config, form_of(f)).need("none", 16);
    f.recompute              = true;
    const double again       = MemoryPlan(f, config, form_of(f)).need("none", 16);
    f.recompute              = false;
    REQUIRE(again < 0.8 * kept);

    constexpr double kUsable = 0.9, kMegabyte = 1 << 20;
    const auto       with = [&](double bytes) {
        f.device = format("fake:0:%.0f", bytes / kUsable / kMegabyte);
        return fit_memory(f, config, true).recompute;
    };
    CHECK_FALSE(with(1.3 * kept));
    CHECK(with((kept + again) / 2.0));
}

TEST_CASE("a_gpu_that_is_not_there_fits_what_the_same_one_would") {
    const ModelConfig config = wide();
    RunPlan           f      = some_plan(1, "none", 16, 16);
    f.optim.chunk            = "16x16";
    f.device                 = "fake";
    constexpr double kUsable = 0.9;
    const double     needs   = MemoryPlan(f, config, Form::device).need("none", 16) / kUsable;
    f.device                 = "cpu";
    const CardFit fits = fit_card(f, config, 1.01 * needs), less = fit_card(f, config, 0.8 * needs);
    CHECK(fits.fits);
    CHECK(fits.fit.micro == 16);
    CHECK(less.fits);
    CHECK(less.fit.micro < 16);
    const CardFit none = fit_card(f, config, 1e3);
    CHECK_FALSE(none.fits);
    CHECK(none.fit.recompute);
    CHECK(none.fit.micro == 1);
}

TEST_CASE("a_gradient_is_timed_in_the_form_and_type_of_the_run", "[device]") {
    const ModelFile model = some_model(small("llama"));  // its fused ops have no kernels on devices
    for (const char * device : {"cpu", "fake"}) {
        for (const char * compute : {"f32", "bf16"}) {
            for (const bool portable : {false, true}) {
                TrainFlags f;
                f.device   = device;
                f.compute  = compute;
                f.portable = portable;
                f.batch = f.threads = 1;
                INFO(device << " " << compute << (portable ? " portable" : ""));
                if (form_of(f) == Form::fused && is_half(f)) {
                    continue;  // refused before
                }
                CHECK(gradient_seconds(model, 8, f) > 0.0);
            }
        }
    }
}

// --- failures --------------------------------------------------------------------------------------

TEST_CASE("a_rank_that_fails_in_a_run_ends_all_with_one_message") {
    const ModelConfig config = small("gpt2");
    const ModelFile   model  = some_model(config);
    SomeData          data(config);
    for (const char * shard : {"none", "optimizer", "full"}) {
        for (const bool thread_ends : {false, true}) {
            INFO(shard << (thread_ends ? ", its thread ends" : ", it throws"));
            const RunPlan f     = some_plan(3, shard, 4, 1);
            const auto    start = std::chrono::steady_clock::now();
            Recorder      peers;
            std::string   message;
            try {
                run_ranks(3, [&](LocalGroup & ranks) {
                    TrainRank rank(f, model, data, ranks, peers);
                    rank.trainer().join({}, true);
                    for (int step = 0;; ++step) {
                        if (ranks.rank() == 1 && step == 2) {
                            thread_ends ? pthread_exit(nullptr) : throw Error("the device is gone");
                        }
                        rank.trainer().train();
                    }
                });
            } catch (const Error & error) {
                message = error.what();
            }
            CHECK(message.find(thread_ends ? "rank 1 ended" : "rank 1: the device is gone") == 0);
            CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
        }
    }
}

TEST_CASE("memory_that_runs_out_on_one_rank_ends_all_with_one_message", "[device]") {
    const ModelConfig config = small("gpt2");
    const ModelFile   model  = some_model(config);
    SomeData          data(config);
    Recorder          peers;
    std::string       message;
    try {
        run_ranks(3, [&](LocalGroup & ranks) {
            RunPlan f = some_plan(3, "optimizer", 4, 1);
            f.device  = ranks.rank() == 2 ? "fake:0:1" : "fake";  // one has 1 MB
            f.batch = f.micro = 64;
            TrainRank rank(f, model, data, ranks, peers);
            rank.trainer().join({}, true);
        });
    } catch (const Error & error) {
        message = error.what();
    }
    INFO(message);
    CHECK(message.find("rank 2: out of memory") == 0);
}

namespace {

std::shared_ptr<Device> fake_device(int) {
    const auto backend = std::make_shared<Backend>("fake", 1);
    return {backend, backend->device()};
}

// Ranks that do what others do, but forget one of them when they add up.
class Forgetful : public LocalGroup {
public:
    explicit Forgetful(LocalGroup & ranks) : ranks_(ranks) {}

    int  rank() const override { return ranks_.rank(); }
    int  size() const override { return ranks_.size(); }
    void reduce_scatter(
        std::span<const float> full, std::span<const int64_t> offsets, std::span<float> shard
    ) override {
        ranks_.reduce_scatter(full, offsets, shard);
    }
    void all_gather(
        std::span<const float> shard, std::span<const int64_t> offsets, std::span<float> full
    ) override {
        ranks_.all_gather(shard, offsets, full);
    }
    void all_reduce(std::span<float> data) override {
        if (rank() == 1) {
            std::fill(data.begin(), data.end(), 0.0f);
        }
        ranks_.all_reduce(data);
    }
    void broadcast(std::span<uint8_t> data, int root) override { ranks_.broadcast(data, root); }
    void barrier() override { ranks_.barrier(); }

private:
    LocalGroup & ranks_;
};

}  // namespace

TEST_CASE("devices_are_checked_against_ranks_in_one_memory", "[device]") {
    const std::string fake_nccl = GT_FAKE_NCCL;
    CHECK(
        check_nccl(3, fake_device, fake_nccl) ==
        "nccl: 3 devices, all verbs agree with shared memory"
    );
    std::string message;
    try {
        run_ranks_nccl(
            {0, 1},
            [&](LocalGroup & ranks) {
                Forgetful forgetful(ranks);
                check_ranks(forgetful, *fake_device(0));
            },
            {.nccl = fake_nccl}
        );
    } catch (const Error & error) {
        message = error.what();
    }
    INFO(message);
    CHECK(message.find("NCCL self-test failed: reduced value 3, expected 6") == 8);
    CHECK(
        check_nccl(2, fake_device, "/nowhere/libnccl.so.2")
            .find("nccl: not tested: several GPUs need "
                  "NCCL, which cannot be loaded") == 0
    );
}
