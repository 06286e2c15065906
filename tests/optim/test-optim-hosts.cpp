// Invariants of every replicator: all hosts have equal bits, a restart changes nothing, no update is lost.
#include "optim/wire/shares.h"
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <deque>

using namespace gt;

// Each replicator with its default wire type and with fp32, and some more settings.
static std::vector<OptimOptions> all_options() {
    std::vector<OptimOptions> list;
    for (const auto & name : replicator_names()) {
        for (const char * wire : {"auto", "fp32"}) {
            OptimOptions options{.replicator = name.name, .wire = wire, .top_k = 8, .rate = 0.25f};
            options.every = steps_per_round(options) > 1 ? 3 : 1;
            list.push_back(options);
        }
    }
    list.push_back({.replicator = "demo", .rule = "adamw", .wire = "q2", .top_k = 5});
    list.push_back({.replicator = "demo", .wire = "q8", .chunk = "512", .top_k = 9, .every = 2});
    list.push_back(
        {.replicator = "demo", .rule = "muon", .wire = "fp16", .chunk = "16x32", .top_k = 4}
    );
    list.push_back({.replicator = "demo", .top_k = 4, .clip_messages = 0.5f});
    list.push_back({.replicator = "random", .wire = "q4", .every = 2});
    list.push_back({.replicator = "striding", .rule = "adamw", .wire = "q2"});
    list.push_back({.replicator = "full", .rule = "muon", .wire = "q8"});
    list.push_back({.replicator = "loco", .every = 2, .fragments = 1});
    list.push_back({.replicator = "loco", .every = 2, .correction = 0.0f});
    return list;
}

static bool same_shared_state(SimHost & one, SimHost & other) {
    const auto a = one.optimizer->state(), b = other.optimizer->state();
    bool       same = true;
    for (size_t i = 0; i < a.tensors.size(); ++i) {
        const auto & values = a.tensors[i].values;
        same                = same && (!a.tensors[i].shared ||
                        std::equal(values.begin(), values.end(), b.tensors[i].values.begin()));
    }
    return same;
}

static std::string text_of(const OptimOptions & o) {
    return o.replicator + " " + o.rule + " " + o.wire + " " + o.chunk;
}

TEST_CASE("all_hosts_have_equal_weights_after_each_round") {
    Workers workers(2);
    for (const OptimOptions & options : all_options()) {
        for (const int n : {2, 3, 8}) {
            if (options.replicator == "none" || (n == 8 && options.rule == "muon")) {
                continue;
            }
            INFO(text_of(options) << ", " << n << " hosts");
            auto           hosts = sim_hosts(n, options, workers);
            const uint64_t fresh = digest_of(hosts[0]->model.weight);
            for (uint64_t step = 0; step < 6; ++step) {
                sim_step(hosts, step);
                const uint64_t every = std::max<uint64_t>(options.every, 1);
                if ((step + 1) % every != 0) {
                    continue;
                }
                for (auto & host : hosts) {
                    REQUIRE(same_shared_state(*host, *hosts[0]));
                    if (options.replicator != "loco" || options.fragments == 1) {
                        REQUIRE(same_bits(host->model.weight, hosts[0]->model.weight));
                    }
                }
            }
            CHECK(digest_of(hosts[0]->model.weight) != fresh);
        }
    }
}

TEST_CASE("a_restart_in_the_middle_changes_nothing") {
    Workers workers(2);
    for (const OptimOptions & options : all_options()) {
        INFO(text_of(options));
        auto hosts = sim_hosts(2, options, workers), twins = sim_hosts(2, options, workers);
        std::vector<SimState> states;
        for (uint64_t step = 0; step < 8; ++step) {
            sim_step(hosts, step);
            sim_step(twins, step);
            if (step == 3) {  // new optimizers over the same weights; for diloco between two rounds
                for (auto & twin : twins) {
                    const SimState state = save(*twin->optimizer);
                    Workers        more(3);
                    twin->optimizer = make_optimizer(options, twin->model.params(options), workers);
                    load(*twin->optimizer, state);
                }
            }
        }
        for (size_t h = 0; h < hosts.size(); ++h) {
            CHECK(same_bits(hosts[h]->model.weight, twins[h]->model.weight));
            CHECK(save(*hosts[h]->optimizer) == save(*twins[h]->optimizer));
        }
    }
}

TEST_CASE("threads_do_not_change_a_bit") {
    Workers one(1), eight(8);
    for (const OptimOptions & options : all_options()) {
        INFO(text_of(options));
        SimHost a(0, options, one), b(0, options, eight);
        for (uint64_t step = 0; step < 4; ++step) {
            const Bytes mine = a.prepare(step), theirs = b.prepare(step);
            REQUIRE(mine == theirs);
            Round round{.step = step, .has_mine = true};
            if (!mine.empty()) {
                round.messages.push_back({"a", 2, mine});
            }
            a.optimizer->apply(round);
            b.optimizer->apply(round);
            REQUIRE(same_bits(a.model.weight, b.model.weight));
        }
        CHECK(save(*a.optimizer) == save(*b.optimizer));
    }
}

TEST_CASE("ranks_join_to_the_message_of_a_single_rank") {
    Workers workers(2);
    for (const OptimOptions & options : all_options()) {
        INFO(text_of(options));
        SimHost                                 whole(0, options, workers);
        SimModel                                model;
        std::vector<std::unique_ptr<Optimizer>> ranks;
        for (int r = 0; r < 3; ++r) {
            ranks.push_back(make_optimizer(options, model.params(options, r, 3), workers));
        }
        for (uint64_t step = 0; step < 4; ++step) {
            const Bytes message = whole.prepare(step);
            model.set_gradients(0, step);
            std::vector<Bytes> parts;
            for (auto & rank : ranks) {
                parts.push_back(rank->prepare(step, 0.003f).message);
            }
            Round round{.step = step, .has_mine = true};
            if (!message.empty()) {
                std::swap(parts[0], parts[2]);  // the order of parts does not matter
                REQUIRE(join_parts(parts) == message);
                round.messages = {{"a", 1, message}};
            }
            whole.optimizer->apply(round);
            for (auto & rank : ranks) {
                rank->apply(round);
            }
            REQUIRE(same_bits(whole.model.weight, model.weight));
        }
    }
}

TEST_CASE("take_back_restores_a_late_message") {
    Workers workers(2);
    for (const OptimOptions & options : all_options()) {
        if (options.replicator == "none") {
            continue;
        }
        INFO(text_of(options));
        SimHost        host(0, options, workers);
        const uint64_t step = std::max<uint64_t>(options.every, 1) - 1;
        for (uint64_t s = 0; s < step; ++s) {
            (void) host.prepare(s);
        }
        const Bytes    message = host.prepare(step);
        const SimState after   = save(*host.optimizer);
        const auto     sent_at = host.model.weight;
        host.optimizer->take_back(step);
        const SimState back = save(*host.optimizer);
        double         sent = 0.0, kept = 0.0;
        for (size_t t = 0; t < host.model.grad.size(); ++t) {
            for (size_t i = 0; i < back.tensors[t].size(); ++i) {
                sent += std::fabs(back.tensors[t][i] - after.tensors[t][i]);
                kept += std::fabs(back.tensors[t][i]);
            }
            for (size_t i = 0; i < sent_at[t].size(); ++i) {  // local steps: in the weights
                const double change = std::fabs(host.model.weight[t][i] - sent_at[t][i]);
                sent += change;
                kept += change;
            }
        }
        REQUIRE(!message.empty());
        CHECK(sent > 0.0);
        CHECK(kept > 0.0);
        for (const Bytes & blob : back.blobs) {
            CHECK(blob.empty());
        }
        // a second call has no effect
        host.optimizer->take_back(step);
        CHECK(save(*host.optimizer) == back);
    }
}

static std::vector<std::vector<float>> shared_of(SimHost & host) {
    std::vector<std::vector<float>> shared;
    for (const StateTensor & tensor : host.optimizer->state().tensors) {
        if (tensor.shared) {
            shared.emplace_back(tensor.values.begin(), tensor.values.end());
        }
    }
    return shared;
}

TEST_CASE("a_late_change_of_diloco_is_sent_with_the_next_one") {
    Workers            workers(1);
    const OptimOptions options{.replicator = "diloco", .wire = "fp32", .every = 2};
    SimHost            host(0, options, workers), other(1, options, workers);
    for (uint64_t step = 0; step < 4; ++step) {
        Bytes mine = host.prepare(step), theirs = other.prepare(step);
        Round round{.step = step};
        if (step == 1) {  // only theirs is committed
            round.messages = {{"1", 1, theirs}};
            host.optimizer->take_back(step);
            round.has_mine = false;
            host.optimizer->apply(round);
            round.has_mine = true;
            other.optimizer->apply(round);
        } else if (step == 3) {
            round.messages = {{"0", 1, mine}, {"1", 1, theirs}};
            round.has_mine = true;
            host.optimizer->apply(round);
            other.optimizer->apply(round);
        }
        if (step == 1) {  // the pending change is in the late host's weights only
            CHECK(same_bits(shared_of(host), shared_of(other)));
            CHECK_FALSE(same_bits(host.model.weight, other.model.weight));
        } else if (step == 3) {
            CHECK(same_bits(host.model.weight, other.model.weight));
        }
    }
}

// The largest difference between the momenta of two hosts that train with loco, relative to their norm.
static double distance_of_momenta(float correction, int64_t overlap) {
    Workers            workers(1);
    const OptimOptions options{.replicator = "loco", .correction = correction, .overlap = overlap};
    auto               hosts = sim_hosts(2, options, workers);
    Round              travelling{.step = 0};
    for (uint64_t step = 0; step < 12; ++step) {
        Round round{.step = step, .has_mine = true};
        for (size_t h = 0; h < hosts.size(); ++h) {
            round.messages.push_back({std::to_string(h), 1, hosts[h]->prepare(step)});
        }
        for (auto & host : hosts) {
            if (overlap == 0 || step > 0) {
                host->optimizer->apply(overlap > 0 ? travelling : round);
            }
        }
        travelling = std::move(round);
    }
    double     difference = 0.0, norm = 0.0;
    const auto a = hosts[0]->optimizer->state(), b = hosts[1]->optimizer->state();
    for (size_t t = 0; t < a.tensors.size(); ++t) {
        for (size_t i = 0; i < a.tensors[t].values.size() && a.tensors[t].name.starts_with("muon");
             ++i) {
            const double x = a.tensors[t].values[i], y = b.tensors[t].values[i];
            difference += (x - y) * (x - y);
            norm += x * x + y * y;
        }
    }
    return std::sqrt(difference / norm);
}

TEST_CASE("a_round_brings_the_momenta_of_the_hosts_closer") {
    for (const int64_t overlap : {0, 1}) {
        CHECK(distance_of_momenta(0.25f, overlap) < 0.95 * distance_of_momenta(0.0f, overlap));
    }
}

// Three hosts whose rounds travel. Host 2 is told in the fifth one that its message came too late.
class Travelling {
public:
    Travelling(const OptimOptions & options, Workers & workers)
        : hosts(sim_hosts(3, options, workers)), options_(options), workers_(workers) {}

    void step(uint64_t step) {
        Round round{.step = step, .has_mine = true};
        for (auto & host : hosts) {
            Bytes message = host->prepare(step);
            if (!message.empty()) {
                round.messages.push_back({std::to_string(host->id), 1 + host->id, message});
            }
        }
        if (!round.messages.empty()) {
            rounds_.push_back(round);
        }
        while (!rounds_.empty() && rounds_.front().step + overlap_of(options_) <= step) {
            for (auto & host : hosts) {
                Round mine    = rounds_.front();
                mine.has_mine = host->id != 2 || n_applied_ != 4;
                host->optimizer->apply(mine);
            }
            ++n_applied_;
            rounds_.pop_front();
        }
    }

    // New optimizers over the same weights, with the state of the old ones.
    void restart() {
        for (auto & host : hosts) {
            const SimState state = save(*host->optimizer);
            host->optimizer      = make_optimizer(options_, host->model.params(options_), workers_);
            load(*host->optimizer, state);
        }
    }

    std::vector<std::unique_ptr<SimHost>> hosts;

private:
    OptimOptions      options_;
    Workers &         workers_;
    std::deque<Round> rounds_;
    int               n_applied_ = 0;
};

TEST_CASE("a_round_may_travel_for_several_steps_and_a_restart_meanwhile_changes_nothing") {
    Workers workers(2);
    for (OptimOptions options : all_options()) {
        if (options.replicator == "none") {
            continue;
        }
        const bool is_long = steps_per_round({.replicator = options.replicator}) > 1;
        options.every      = is_long ? 5 : options.every;
        for (const int64_t overlap : {0, 1, 3, 4}) {
            options.overlap = overlap;
            if (overlap > 1 && !is_long) {
                continue;
            }
            INFO(text_of(options) << ", overlap " << overlap);
            Travelling run(options, workers), twin(options, workers);
            for (uint64_t step = 0; step < (is_long ? 27 : 9); ++step) {
                run.step(step);
                twin.step(step);
                twin.restart();
                // shared state is equal; weights, too, without local steps
                REQUIRE(same_shared_state(*run.hosts[0], *run.hosts[1]));
                REQUIRE(same_shared_state(*run.hosts[0], *run.hosts[2]));
                if (!has_local_steps(options)) {
                    REQUIRE(same_bits(run.hosts[0]->model.weight, run.hosts[1]->model.weight));
                }
            }
            for (size_t h = 0; h < run.hosts.size(); ++h) {
                CHECK(same_bits(run.hosts[h]->model.weight, twin.hosts[h]->model.weight));
                CHECK(save(*run.hosts[h]->optimizer) == save(*twin.hosts[h]->optimizer));
            }
        }
    }
}

// Rounds each group of a tensor to a wire type.
static std::vector<float> rounded(std::vector<float> x, const TensorShape & shape, Wire wire) {
    const int64_t width = shape.is_vector ? shape.size() : shape.cols, group = dense_group(wire);
    Bytes         bytes(static_cast<size_t>(group_bytes(wire, Group::dense, group)));
    for (int64_t row = 0; row < shape.size(); row += width) {
        for (int64_t at = 0; at < width; at += group) {
            float * values = x.data() + row + at;
            encode_group(
                wire, Group::dense, values, std::min(group, width - at), bytes.data(), values
            );
        }
    }
    return x;
}

// Rounded once more, to the wire type of the messages.
TEST_CASE("shares_of_dense_messages_average_to_the_mean_of_the_whole_ones") {
    Workers workers(2);
    for (const char * replicator : {"full", "diloco"}) {
        for (const char * wire : {"fp32", "fp16", "q8", "q4"}) {
            INFO(replicator << " " << wire);
            // the plain mean becomes the weights
            const OptimOptions options{
                .replicator     = replicator,
                .rule           = "sgd",
                .wire           = wire,
                .every          = 1,
                .outer_lr       = 1.0f,
                .outer_momentum = 0.0f,
                .weight_decay   = 0.0f,
                .clip_messages  = 0.0f};
            auto  hosts = sim_hosts(3, options, workers);
            Round round{.step = 0, .has_mine = true};
            for (auto & host : hosts) {
                round.messages.push_back({"h", sim_weight(host->id), host->prepare(0, 1.0f)});
            }
            const auto  params = hosts[0]->model.params(options);
            const Bytes joined = mean_update(params, round.messages, 5);
            CHECK(joined == mean_update(params, round.messages, 3));
            const auto applied = [&](const Round & one) {
                SimHost probe(0, options, workers);
                for (auto & weight : probe.model.weight) {
                    std::fill(weight.begin(), weight.end(), 0.0f);
                }
                probe.optimizer = make_optimizer(options, probe.model.params(options), workers);
                probe.optimizer->apply(one);
                return probe.model.weight;
            };
            const auto whole = applied(round);
            const auto mean =
                applied({.step = 0, .messages = {{"mean", 9, joined}}, .has_mine = true});
            std::string why;
            const Wire  type = read_head(joined, why)->wire;
            for (size_t t = 0; t < whole.size(); ++t) {
                CHECK(mean[t] == rounded(whole[t], shape_of(params[t]), type));
            }
            CHECK(digest_of(whole) != digest_of(applied({.step = 0})));
        }
    }
}

TEST_CASE("a_malformed_message_has_no_effect") {
    Workers            workers(1);
    const OptimOptions options{.replicator = "demo", .top_k = 8};
    SimHost            a(0, options, workers), b(1, options, workers), c(0, options, workers);
    const Bytes        good = a.prepare(0), other = b.prepare(0);
    (void) c.prepare(0);
    Bytes bad           = other;
    bad[kHeadBytes + 1] = 0x7f;  // a scale of infinity
    bad[kHeadBytes]     = 0x80;
    CHECK_FALSE(check_message(options, a.model.params(options), 0, bad).empty());
    a.optimizer->apply({.step = 0, .messages = {{"a", 1, good}, {"b", 5, bad}}, .has_mine = true});
    c.optimizer->apply({.step = 0, .messages = {{"a", 1, good}}, .has_mine = true});
    CHECK(same_bits(a.model.weight, c.model.weight));

    // a round without valid messages changes nothing
    const auto before = b.model.weight;
    b.optimizer->apply({.step = 0, .messages = {{"b", 5, bad}}});
    b.optimizer->apply({.step = 0});
    CHECK(same_bits(b.model.weight, before));
}

TEST_CASE("message_bytes_is_the_size_of_the_message") {
    Workers workers(1);
    for (const OptimOptions & options : all_options()) {
        INFO(text_of(options));
        SimHost host(0, options, workers);
        for (uint64_t step = 0; step < 3; ++step) {
            CHECK(
                message_bytes(options, host.model.params(options), step) ==
                static_cast<int64_t>(host.prepare(step).size())
            );
        }
    }
}
