// Ranks of one host: their number and what they share changes nothing but rounding, and a rank that
// fails ends all. Everything real but the text: synthetic tokens.
#include "comm/comm.h"
#include "comm/local.h"
#include "ggml-train/checkpoint.h"
#include "ggml-train/ggml-device.h"
#include "models/init.h"
#include "tests/catch.h"
#include "tests/scratch.h"
#include "tools/check-ranks.h"
#include "tools/train-memory.h"
#include "tools/train-rank.h"

#include <atomic>
#include <chrono>

using namespace gt;

namespace {

ModelConfig small(const std::string & arch, int64_t n_layer = 3) {
    ModelConfig c;
    c.arch      = arch;
    c.n_embd    = 32;
    c.n_layer   = n_layer;
    c.n_head    = 2;
    c.n_head_kv = arch == "llama" ? 1 : 2;
    c.n_ff      = 48;
    c.n_vocab   = 67;  // padded to 80 rows
    c.n_ctx     = 8;
    c.tied      = arch != "llama";
    if (arch == "vit") {
        c.image_size = 8;
        c.patch_size = 4;
        c.channels   = 1;
        c.n_classes  = 5;
    }
    return c;
}

Batch some_batch(const ModelConfig & c, uint64_t step, int64_t n) {
    Batch         batch{.n_samples = n};
    const int64_t T = c.n_ctx, pixels = c.image_size * c.image_size * c.channels;
    for (int64_t i = 0; i < n * pixels; ++i) {
        batch.images.push_back(random_uniform(random_bits(8, step, i)) - 0.5f);
    }
    for (int64_t i = 0; c.arch == "vit" && i < n; ++i) {
        batch.labels.push_back(static_cast<int32_t>(random_bits(9, step, i) % c.n_classes));
    }
    for (int64_t i = 0; c.arch != "vit" && i < n * T; ++i) {
        batch.tokens.push_back(static_cast<int32_t>(random_bits(8, step, i) % c.n_vocab));
        batch.labels.push_back(static_cast<int32_t>(random_bits(9, step, i) % c.n_vocab));
    }
    if (c.arch == "vit") {
        for (int64_t i = 0; i < n * 2 * c.n_layer; ++i) {
            batch.depth.push_back(random_bits(5, step, i) % 4 == 0 ? 0.0f : 1.25f);
        }
    }
    return batch;
}

TrainTask some_task(const ModelConfig & config, int64_t batch) {
    TrainTask task;
    task.model = empty_model(config);
    init_model(task.model, 3);
    task.T     = config.arch == "vit" ? config.n_positions() : config.n_ctx;
    task.depth = config.arch == "vit";
    task.train = [=](uint64_t step, const std::string &, int64_t, int64_t) {
        return some_batch(config, step, batch);
    };
    return task;
}

TrainFlags some_flags(int ranks, const std::string & shard, int64_t batch, int64_t micro) {
    TrainFlags f;
    f.optim.replicator = "none";
    f.optim.rule       = "adamw";
    f.schedule         = {.lr = 1e-3f, .steps = 100};
    f.ranks            = ranks;
    f.shard            = shard;
    f.batch            = batch;
    f.micro            = micro;
    f.threads          = 1;
    return f;
}

// A host alone that keeps what it would send, and the digests of its state.
class Recorder : public RunPeers {
public:
    const std::string & host() const override { return self_->host(); }
    void                publish(uint64_t round, uint64_t weight, Bytes message) override {
        messages.push_back(message);
        self_->publish(round, weight, std::move(message));
    }
    Round    collect(uint64_t round) override { return self_->collect(round); }
    Joined   join(std::span<const uint8_t> m, bool fresh) override { return self_->join(m, fresh); }
    uint64_t n_behind() override { return 0; }
    Bytes    mark() override { return self_->mark(); }
    void     report(const StepReport & r) override { digests.push_back(r.state_digest); }
    void     put_part(uint64_t, int, Bytes) override {}

    std::vector<Bytes>    messages;
    std::vector<uint64_t> digests;

private:
    std::unique_ptr<RunPeers> self_ = make_self_peers("self");
};

struct Trained {
    std::vector<double>             losses, norms;
    std::vector<std::vector<float>> weights;
    std::vector<Bytes>              messages;
    std::vector<uint64_t>           digests;
};

std::vector<float> joined(const HostTensor & tensor) {
    std::vector<float> all;
    for (const HostTensor::Piece & piece : tensor.pieces) {
        const HostView view = piece.view();
        all.insert(all.end(), view.values().begin(), view.values().end());
    }
    return all;
}

Trained train(const ModelConfig & config, const TrainFlags & f, int n_steps = 5) {
    const TrainTask task = some_task(config, f.batch);
    Recorder        peers;
    Trained         trained;
    run_ranks(f.ranks, [&](LocalGroup & ranks) {
        TrainRank rank(f, task, ranks, peers);
        rank.trainer().join({}, true);
        for (int i = 0; i < n_steps; ++i) {
            const StepResult result = rank.trainer().train();
            if (ranks.rank() == 0) {
                trained.losses.push_back(result.loss);
                trained.norms.push_back(result.grad_norm);
            }
        }
        on_first(ranks, [&] {
            for (const HostTensor & weight : rank.state().weights) {
                trained.weights.push_back(joined(weight));
            }
        });
    });
    trained.messages = std::move(peers.messages);
    trained.digests  = std::move(peers.digests);
    return trained;
}

double farthest(const Trained & a, const Trained & b) {
    double most = 0.0;
    REQUIRE(a.weights.size() == b.weights.size());
    for (size_t i = 0; i < a.weights.size(); ++i) {
        REQUIRE(a.weights[i].size() == b.weights[i].size());
        for (size_t k = 0; k < a.weights[i].size(); ++k) {
            most = std::max<double>(most, std::fabs(a.weights[i][k] - b.weights[i][k]));
        }
    }
    return most;
}

}  // namespace

TEST_CASE("any_number_of_ranks_trains_alike_whatever_they_share") {
    for (const char * arch : {"gpt2", "llama", "vit"}) {
        const ModelConfig config = small(arch);
        TrainFlags        f      = some_flags(1, "none", 12, 12);
        f.clip                   = 0.5f;  // below the norm: every step is clipped
        const Trained alone      = train(config, f);
        CHECK(alone.norms[0] > f.clip);
        for (const int n_ranks : {1, 2, 3, 4}) {
            for (const char * shard : {"none", "optimizer", "full"}) {
                INFO(arch << ", " << n_ranks << " ranks, " << shard);
                f.ranks = n_ranks;
                f.shard = shard;
                f.micro = n_ranks == 4 ? 2 : 3;  // 6 or 4 micro-batches: some have none
                const Trained shared = train(config, f);
                for (size_t i = 0; i < alone.losses.size(); ++i) {
                    CHECK(std::fabs(shared.losses[i] - alone.losses[i]) < 1e-5);
                }
                CHECK(farthest(shared, alone) < 1e-5);
            }
        }
    }
}

// One sample a step: one rank computes it, the others add zeros, and all have the same gradient.
TEST_CASE("equal_gradients_make_equal_messages_states_and_weights_on_any_number_of_ranks") {
    const ModelConfig config = small("gpt2");
    for (const char * rule : {"sgd", "adamw", "muon"}) {
        for (const char * replicator : {"demo", "random", "full", "diloco"}) {
            TrainFlags f        = some_flags(1, "none", 1, 1);
            f.optim.replicator  = replicator;
            f.optim.rule        = rule;
            f.optim.chunk       = "16x16";
            f.optim.every       = std::string(replicator) == "diloco" ? 2 : 1;
            const Trained alone = train(config, f, 4);
            CHECK_FALSE(alone.messages.back().empty());
            for (const int n_ranks : {2, 3, 4}) {
                for (const char * shard : {"none", "optimizer", "full"}) {
                    INFO(replicator << ", " << rule << ", " << n_ranks << " ranks, " << shard);
                    f.ranks              = n_ranks;
                    f.shard              = shard;
                    const Trained shared = train(config, f, 4);
                    CHECK((shared.messages == alone.messages));
                    CHECK((shared.weights == alone.weights));
                    CHECK(shared.digests == alone.digests);
                    CHECK(shared.norms == alone.norms);
                }
            }
        }
    }
}

TEST_CASE("a_streamed_step_on_one_rank_has_the_bits_of_a_whole_one") {
    for (const char * arch : {"gpt2", "llama", "vit"}) {
        for (const int64_t n_layer : {1, 2, 5}) {
            for (const bool portable : {false, true}) {
                INFO(arch << ", " << n_layer << " blocks" << (portable ? ", portable" : ""));
                TrainFlags f        = some_flags(1, "none", 4, 2);
                f.portable          = portable;
                const Trained whole = train(small(arch, n_layer), f, 2);
                f.shard             = "full";
                const Trained parts = train(small(arch, n_layer), f, 2);
                CHECK((parts.weights == whole.weights));
                CHECK(parts.losses == whole.losses);
            }
        }
    }
}

// --- devices ---------------------------------------------------------------------------------------

// Our kernels differ from the CPU's in rounding only, and repeat themselves.
TEST_CASE("devices_train_as_the_cpu_does_whole_and_streamed", "[device]") {
    for (const char * arch : {"gpt2", "llama", "vit"}) {
        const ModelConfig config = small(arch);
        TrainFlags        f      = some_flags(2, "optimizer", 2, 1);
        const Trained     cpu    = train(config, f, 2);
        f.device                 = "fake";  // each rank has one
        const Trained whole      = train(config, f, 2);
        const Trained again      = train(config, f, 2);
        CHECK((again.weights == whole.weights));
        CHECK(again.losses == whole.losses);
        f.shard                = "full";
        const Trained streamed = train(config, f, 2);
        for (const Trained & device : {whole, streamed}) {
            INFO(arch << (&device == &whole ? ", whole" : ", streamed"));
            for (size_t i = 0; i < cpu.losses.size(); ++i) {
                CHECK(device.losses[i] == Approx(cpu.losses[i]).epsilon(1e-5));
            }
            CHECK(farthest(device, cpu) < 1e-5);
        }
    }
}

TEST_CASE("equal_gradients_make_equal_messages_on_any_number_of_devices", "[device]") {
    const ModelConfig config = small("gpt2", 1);
    TrainFlags        f      = some_flags(1, "none", 1, 1);
    f.optim.replicator       = "demo";
    f.optim.rule             = "sgd";
    f.optim.chunk            = "16x16";
    f.device                 = "fake";
    const Trained alone      = train(config, f, 2);
    CHECK_FALSE(alone.messages.back().empty());
    f.ranks = 2;
    for (const char * shard : {"optimizer", "full"}) {
        INFO(shard);
        f.shard               = shard;
        const Trained devices = train(config, f, 2);
        CHECK((devices.messages == alone.messages));
        CHECK((devices.weights == alone.weights));
        CHECK(devices.digests == alone.digests);
    }
}

// --- going on --------------------------------------------------------------------------------------

namespace {

// A host alone, one of whose messages came too late.
class LatePeers : public Recorder {
public:
    Round collect(uint64_t round) override {
        Round out = Recorder::collect(round);
        if (round == kLate) {
            out.messages.clear();
            out.has_mine = false;
        }
        return out;
    }

    static constexpr uint64_t kLate = 2;
};

// Trains until `end`, with a round in flight; from a checkpoint and to one, if a folder is given.
// Returns the host's weights and state.
std::vector<std::vector<float>>
go_on(const TrainFlags & f, const std::string & from, uint64_t end, const std::string & to) {
    const TrainTask                 task = some_task(small("gpt2"), f.batch);
    LatePeers                       peers;
    std::vector<std::vector<float>> values;
    run_ranks(f.ranks, [&](LocalGroup & ranks) {
        TrainRank  rank(f, task, ranks, peers);
        Trainer &  trainer = rank.trainer();
        Bytes      mark;
        const auto checkpoint = [&] {
            Checkpoint c{
                .config = &task.model.config,
                .keys   = task.model.keys.get(),
                .step   = trainer.step(),
                .state  = rank.state()};
            c.state.blobs.push_back({"mark", {&mark}});
            return c;
        };
        if (!from.empty()) {
            trainer.set_step(from_first(ranks, [&] {
                Checkpoint c = checkpoint();
                load_checkpoint(find_checkpoint(from, task.model.config).path, c);
                return c.step;
            }));
            rank.share_weights();
        }
        trainer.join(mark, from.empty());
        while (trainer.step() < end) {
            (void) trainer.train();
        }
        on_first(ranks, [&] {
            mark = peers.mark();
            if (!to.empty()) {
                save_checkpoint(to, checkpoint());
            }
            for (const auto & tensors : {rank.state().weights, rank.state().tensors}) {
                for (const HostTensor & tensor : tensors) {
                    values.push_back(joined(tensor));
                }
            }
        });
    });
    return values;
}

}  // namespace

TEST_CASE("a_message_in_flight_goes_on_with_any_number_of_ranks") {
    const std::string replicator = GENERATE("demo", "random");
    const auto        flags      = [&](int ranks, const std::string & shard) {
        TrainFlags f = some_flags(ranks, shard, 1, 1);  // a batch of 1: the bits of one rank
        f.optim      = {.replicator = replicator, .chunk = "16x16", .overlap = true};
        return f;
    };
    const auto whole = go_on(flags(1, "none"), "", 5, "");
    for (const auto & [n_before, before] :
         std::vector<std::pair<int, std::string>>{{1, "none"}, {3, "optimizer"}, {2, "full"}}) {
        const Scratch dir;
        (void) go_on(flags(n_before, before), "", LatePeers::kLate + 1, dir.path());
        for (const auto & [n_after, after] : std::vector<std::pair<int, std::string>>{
                 {1, "none"}, {2, "none"}, {4, "optimizer"}, {3, "full"}}) {
            INFO(n_before << " ranks, " << before << "; then " << n_after << ", " << after);
            const Scratch again;  // saved once more before the message is taken back
            (void) go_on(flags(n_after, after), dir.path(), LatePeers::kLate + 1, again.path());
            CHECK((go_on(flags(n_before, before), again.path(), 5, "") == whole));
        }
    }
}

// --- memory ----------------------------------------------------------------------------------------

static ModelConfig wide() {
    ModelConfig config = small("gpt2", 12);
    config.n_embd      = 64;
    config.n_ff        = 256;
    return config;
}

TEST_CASE("streamed_ranks_divide_weights_gradients_and_state_between_them") {
    const ModelConfig config = wide();
    const TrainTask   task   = some_task(config, 4);
    double            alone  = 0.0;
    for (const int n_ranks : {1, 2, 3, 4}) {
        TrainFlags f  = some_flags(n_ranks, "full", 4, 1);
        f.optim.chunk = "16x16";
        Recorder peers;
        run_ranks(n_ranks, [&](LocalGroup & ranks) {
            const TrainRank  rank(f, task, ranks, peers);
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
    TrainFlags        f      = some_flags(4, "full", 4, 1);
    f.optim.chunk            = "16x16";
    f.device                 = "fake:1:4";  // each rank has one of 4 MB
    f.portable               = true;
    REQUIRE(16 * n_params(config) > 2 * (4 << 20));
    const Trained under = train(config, f, 2);

    f.device           = "cpu";
    const Trained free = train(config, f, 2);
    CHECK(under.losses == free.losses);
    CHECK(under.norms == free.norms);
    CHECK(farthest(under, free) == 0.0);

    f.device = "fake:1:4";
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
    const TrainTask task   = some_task(wide(), 64);
    const auto      fitted = [&](int n_ranks, const char * device, bool given) {
        TrainFlags f  = some_flags(n_ranks, "auto", 64, given ? 16 : 0);
        f.device      = device;
        f.optim.chunk = "16x16";
        fit_memory(f, task, given);
        return f;
    };
    CHECK(fitted(1, "cpu", false).shard == "none");
    CHECK(fitted(4, "cpu", false).shard == "optimizer");
    CHECK(fitted(4, "cpu", false).micro == 16);
    CHECK(fitted(4, "fake:1:60", false).shard == "optimizer");
    const TrainFlags less = fitted(4, "fake:1:10", false);
    CHECK(less.shard == "optimizer");
    CHECK(less.micro < 16);
    const TrainFlags little = fitted(4, "fake:1:5", false);
    CHECK(little.shard == "full");
    CHECK(fitted(4, "fake:1:5", true).micro == 16);  // a person's word

    // what was promised is what is taken
    for (const TrainFlags & f : {less, little}) {
        Recorder peers;
        run_ranks(4, [&](LocalGroup & ranks) {
            const TrainRank  rank(f, task, ranks, peers);
            const RankMemory memory = rank.memory();
            on_first(ranks, [&] {
                const size_t taken =
                    memory.weights + memory.state + memory.window + memory.activations;
                const double plan = MemoryPlan(f, task).need(f.shard, f.micro);
                INFO(f.shard << ", micro " << f.micro << ": " << taken << " of " << plan);
                CHECK(static_cast<double>(taken) < 1.05 * plan);
                CHECK(static_cast<double>(taken) > 0.6 * plan);
            });
        });
    }
}

// --- failures --------------------------------------------------------------------------------------

TEST_CASE("a_rank_that_fails_in_a_run_ends_all_with_one_message") {
    const ModelConfig config = small("gpt2");
    const TrainTask   task   = some_task(config, 4);
    for (const char * shard : {"none", "optimizer", "full"}) {
        for (const bool thread_ends : {false, true}) {
            INFO(shard << (thread_ends ? ", its thread ends" : ", it throws"));
            const TrainFlags f     = some_flags(3, shard, 4, 1);
            const auto       start = std::chrono::steady_clock::now();
            Recorder         peers;
            std::string      message;
            try {
                run_ranks(3, [&](LocalGroup & ranks) {
                    TrainRank rank(f, task, ranks, peers);
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
    const TrainTask   task   = some_task(config, 4);
    Recorder          peers;
    std::string       message;
    try {
        run_ranks(3, [&](LocalGroup & ranks) {
            TrainFlags f = some_flags(3, "optimizer", 4, 1);
            f.device     = ranks.rank() == 2 ? "fake:1:1" : "fake:1";  // one has 1 MB
            f.batch = f.micro = 64;
            TrainRank rank(f, task, ranks, peers);
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

TEST_CASE("devices_are_held_to_ranks_in_one_memory", "[device]") {
    const std::string fake_nccl = test_library("libgt-fake-nccl.so");
    CHECK(
        check_nccl(3, fake_device, fake_nccl) ==
        "nccl: 3 devices, every verb as in shared memory: all right"
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
    CHECK(message.find("the devices of this host add up 3 where it should be 6") == 8);
    CHECK(
        check_nccl(2, fake_device, "/nowhere/libnccl.so.2")
            .find("nccl: not tested: several GPUs need "
                  "NCCL, which cannot be loaded") == 0
    );
}
