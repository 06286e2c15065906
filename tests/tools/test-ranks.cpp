// Ranks of one host: their number and what they share changes nothing but rounding. Everything real but
// the text: synthetic tokens. test-ranks-limits.cpp has memory and failures.
#include "tests/tools/ranks-fixture.h"

#include <chrono>
#include <cstdlib>

using namespace gt;

TEST_CASE("any_number_of_ranks_trains_the_same_whatever_they_share") {
    for (const char * arch : {"gpt2", "llama", "vit"}) {
        const ModelConfig config = small(arch);
        RunPlan           f      = some_plan(1, "none", 12, 12);
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
    for (const char * rule : {"sgd", "adamw", "adamw q8", "muon"}) {
        const std::string moments = std::string(rule) == "adamw q8" ? "q8" : "f32";
        for (const char * replicator : {"demo", "random", "full", "diloco", "loco"}) {
            RunPlan f           = some_plan(1, "none", 1, 1);
            f.optim.replicator  = replicator;
            f.optim.rule        = moments == "q8" ? "adamw" : rule;
            f.optim.moments     = moments;
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
                RunPlan f           = some_plan(1, "none", 4, 2);
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
        RunPlan           f      = some_plan(2, "optimizer", 2, 1);
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
    RunPlan           f      = some_plan(1, "none", 1, 1);
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

// --- resuming --------------------------------------------------------------------------------------

namespace {

// A host alone, one of whose messages came too late.
class LatePeers : public Recorder {
public:
    Collected collect(uint64_t step) override {
        Collected out = Recorder::collect(step);
        if (step == kLate) {
            out.round.messages.clear();
            out.round.has_mine = false;
        }
        return out;
    }

    static constexpr uint64_t kLate = 2;
};

// Trains until `end`, with a round in flight; from a checkpoint and to one, if a folder is given.
// Returns the host's weights and state.
std::vector<std::vector<float>>
resume(const RunPlan & f, const std::string & from, uint64_t end, const std::string & to) {
    SomeData                        data(small("gpt2"));
    const ModelFile                 model = some_model(small("gpt2"));
    const ModelHead                 head  = model_head(model.config, model.keys.get());
    LatePeers                       peers;
    std::vector<std::vector<float>> values;
    run_ranks(f.ranks, [&](LocalGroup & ranks) {
        TrainRank  rank(f, model, data, ranks, peers);
        Trainer &  trainer = rank.trainer();
        Bytes      mark;
        const auto checkpoint = [&] {
            Checkpoint c{.model = &head, .step = trainer.step(), .state = rank.state()};
            c.state.blobs.push_back({"mark", {&mark}});
            return c;
        };
        if (!from.empty()) {
            trainer.set_step(from_first(ranks, [&] {
                Checkpoint c = checkpoint();
                load_checkpoint(find_checkpoint(from, head).path, c);
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

TEST_CASE("a_message_in_flight_is_kept_with_any_number_of_ranks") {
    const std::string replicator = GENERATE("demo", "random", "diloco");
    const auto        flags      = [&](int ranks, const std::string & shard) {
        RunPlan f = some_plan(ranks, shard, 1, 1);  // a batch of 1: the bits of one rank
        f.optim   = {.replicator = replicator, .chunk = "16x16", .overlap = 1};
        if (replicator == "diloco") {
            f.optim.every   = 3;  // rounds of steps 2 and 5
            f.optim.overlap = 2;
        }
        return f;
    };
    const auto whole = resume(flags(1, "none"), "", 5, "");
    for (const auto & [n_before, before] :
         std::vector<std::pair<int, std::string>>{{1, "none"}, {3, "optimizer"}, {2, "full"}}) {
        const Scratch dir;
        (void) resume(flags(n_before, before), "", LatePeers::kLate + 1, dir.path());
        for (const auto & [n_after, after] : std::vector<std::pair<int, std::string>>{
                 {1, "none"}, {2, "none"}, {4, "optimizer"}, {3, "full"}}) {
            INFO(n_before << " ranks, " << before << "; then " << n_after << ", " << after);
            const Scratch again;  // saved once more before the message is taken back
            (void) resume(flags(n_after, after), dir.path(), LatePeers::kLate + 1, again.path());
            CHECK((resume(flags(n_before, before), again.path(), 5, "") == whole));
        }
    }
}

// --- in turn -----------------------------------------------------------------------------------------

namespace {

// A round ends before the next message is sent. The user wants to stop while the round of `stop_at` travels.
class OneAtATime : public Recorder {
public:
    void publish(uint64_t step, uint64_t n_samples, Bytes message) override {
        CHECK_FALSE(std::exchange(travels_, true));
        Recorder::publish(step, n_samples, std::move(message));
    }
    Collected collect(uint64_t step) override {
        if (step == stop_at) {
            return {.is_stopped = true};
        }
        CHECK(std::exchange(travels_, false));
        return Recorder::collect(step);
    }

    uint64_t stop_at = UINT64_MAX;

private:
    bool travels_ = false;
};

}  // namespace

TEST_CASE("a_round_in_shares_is_over_before_the_next_message_is_sent") {
    const std::string replicator = GENERATE("demo", "loco");
    const int         n_ranks    = GENERATE(1, 2);
    RunPlan           f          = some_plan(n_ranks, "optimizer", 2, 1);
    f.optim             = {.replicator = replicator, .chunk = "16x16", .shares = 0, .overlap = 1};
    const Trained whole = train(small("gpt2"), f);  // messages travel behind one another
    f.optim.shares      = 3;
    for (const uint64_t stop_at : {UINT64_MAX, uint64_t{2}}) {
        SomeData        data(small("gpt2"));
        const ModelFile model = some_model(small("gpt2"));
        OneAtATime      peers;
        peers.stop_at = stop_at;
        run_ranks(n_ranks, [&](LocalGroup & ranks) {
            TrainRank rank(f, model, data, ranks, peers);
            rank.trainer().join({}, true);
            for (int step = 0; step < 5 && !rank.trainer().is_stopped(); ++step) {
                (void) rank.trainer().train();
            }
            if (stop_at == 2) {  // the message of step 3 was made; the next one will hold it
                CHECK(rank.trainer().step() == 4);
                CHECK(*rank.trainer().counters()[0].copies[0] == 2);
            }
        });
        CHECK(
            peers.messages == (stop_at == 2
                                   ? std::vector(whole.messages.begin(), whole.messages.begin() + 3)
                                   : whole.messages)
        );
    }
}

// --- pace ------------------------------------------------------------------------------------------

namespace {

// The others need 0.6 s for a step, as we do. A round of 3 steps travels for 1 s, while they compute: of
// the next one's 1.8 s the sequencer sees what comes after that.
class HiddenRounds : public Recorder {
public:
    void publish(uint64_t step, uint64_t n_samples, Bytes message) override {
        published_ = std::chrono::steady_clock::now();
        Recorder::publish(step, n_samples, std::move(message));
    }
    Collected collect(uint64_t step) override {
        Collected                           out   = Recorder::collect(step);
        const std::chrono::duration<double> since = std::chrono::steady_clock::now() - published_;
        out.info.pace_s                           = 0.8;
        out.info.age_s                            = since.count() - 1.0;
        return out;
    }

private:
    std::chrono::steady_clock::time_point published_;
};

}  // namespace

TEST_CASE("a_transfer_that_is_hidden_does_not_make_the_other_hosts_look_fast") {
    RunPlan f = some_plan(1, "none", 2, 1);
    f.optim   = {.replicator = "diloco", .every = 3, .overlap = 2};
    setenv("GT_TEST_STEP_SECONDS", "0.6", 1);
    SomeData        data(small("gpt2"));
    const ModelFile model = some_model(small("gpt2"));
    HiddenRounds    peers;
    run_ranks(1, [&](LocalGroup & ranks) {
        TrainRank rank(f, model, data, ranks, peers);
        rank.trainer().join({}, true);
        for (int step = 0; step < 7; ++step) {
            CHECK(rank.trainer().train().n_samples == 2);
        }
    });
    unsetenv("GT_TEST_STEP_SECONDS");
    CHECK(peers.messages.size() == 2);
}

// --- joining -----------------------------------------------------------------------------------------

namespace {

// A run that was at step 7 when this host joined: one round is still to be applied.
class LateJoiner : public Recorder {
public:
    explicit LateJoiner(Bytes message) : message_(std::move(message)) {}

    std::optional<Collected> missed(bool) override {
        if (message_.empty()) {
            return std::nullopt;
        }
        Collected out;
        out.round.step     = kStep;
        out.round.has_mine = true;
        out.round.messages.push_back({"other", 1, std::exchange(message_, {})});
        return out;
    }

    static constexpr uint64_t kStep = 7;

private:
    Bytes message_;
};

// A message that another host would have sent for that step.
Bytes message_of(const RunPlan & f, uint64_t step) {
    SomeData        data(small("gpt2"));
    const ModelFile model = some_model(small("gpt2"));
    Recorder        peers;
    run_ranks(1, [&](LocalGroup & ranks) {
        TrainRank rank(f, model, data, ranks, peers);
        rank.trainer().join({}, true);
        rank.trainer().set_step(step);
        (void) rank.trainer().train();
    });
    return peers.messages.back();
}

}  // namespace

TEST_CASE("a_joiner_takes_its_first_gradient_at_the_current_weights") {
    RunPlan f = some_plan(1, "none", 1, 1);
    f.optim   = {.replicator = "demo", .chunk = "16x16"};
    LateJoiner      peers(message_of(f, LateJoiner::kStep));
    SomeData        data(small("gpt2"));
    const ModelFile model = some_model(small("gpt2"));
    run_ranks(1, [&](LocalGroup & ranks) {
        TrainRank rank(f, model, data, ranks, peers);
        rank.trainer().join({}, true);
        const StepResult result = rank.trainer().train();
        CHECK(result.step == LateJoiner::kStep + 1);
    });
    CHECK(data.steps == std::vector<uint64_t>{LateJoiner::kStep + 1});
}

// Offers a shared checkpoint, and keeps the one that it is given.
class Offering : public Recorder {
public:
    Joined join(std::span<const uint8_t>, bool) override {
        ++n_joins;
        return offer;
    }
    std::optional<Bytes> slice(int) override {
        return n_removed-- > 0 ? std::nullopt : std::optional(bytes);
    }
    void applied(Applied applied) override {
        digest = applied.state_digest;
        bytes  = applied.slices.empty() ? bytes : applied.slices[0].bytes;
    }
    Joined   offer;
    Bytes    bytes;
    uint64_t digest  = 0;
    int      n_joins = 0, n_removed = 0;
};

TEST_CASE("a_loaded_checkpoint_is_checked_and_one_that_goes_away_is_replaced") {
    const ModelConfig config = small("gpt2");
    const RunPlan     plan   = some_plan(1, "none", 1, 1);
    SomeData          data(config);
    const ModelFile   model = some_model(config);
    Offering          peers;
    const auto        join = [&] {
        run_ranks(1, [&](LocalGroup & ranks) {
            TrainRank(plan, model, data, ranks, peers).trainer().join({}, true);
        });
    };
    peers.offer.write = {.ours = {0}, .n_slices = 1};
    join();
    REQUIRE_FALSE(peers.bytes.empty());
    peers.offer     = {.step = 7, .n_slices = 1, .state_digest = peers.digest};
    peers.n_removed = 2;
    peers.n_joins   = 0;
    join();
    CHECK(peers.n_joins == 3);
    peers.n_removed = 0;
    peers.bytes[100] ^= 1;
    CHECK(error_of(join).find("is not the state that its writers reported") != std::string::npos);
}
