// The running average of the weights (--ema).
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <algorithm>

using namespace gt;

// Copies of the state tensors that hold averages.
static std::vector<std::vector<float>> averages(Optimizer & optimizer) {
    std::vector<std::vector<float>> all;
    for (const StateTensor & tensor : optimizer.state().tensors) {
        if (tensor.name.starts_with(kAveragePrefix)) {
            CHECK(tensor.shared);
            all.emplace_back(tensor.values.begin(), tensor.values.end());
        }
    }
    return all;
}

TEST_CASE("all_hosts_average_the_weights_that_they_share") {
    Workers workers(2);
    for (const char * replicator : {"full", "demo", "loco", "diloco"}) {
        INFO(replicator);
        const OptimOptions options{.replicator = replicator, .ema = 0.9f};
        SimHost            a(0, options, workers), b(1, options, workers);
        const uint64_t     every = steps_per_round(options);
        for (uint64_t step = 0; step < 3 * every; ++step) {
            const Bytes first = a.prepare(step), second = b.prepare(step);
            Round       round{.step = step, .has_mine = true};
            if (!first.empty()) {
                round.messages = {{"0", 1, first}, {"1", 1, second}};
            }
            a.optimizer->apply(round);
            b.optimizer->apply(round);
        }
        CHECK(averages(*a.optimizer).size() == sim_shapes().size());
        CHECK(same_bits(averages(*a.optimizer), averages(*b.optimizer)));
        CHECK_FALSE(same_bits(averages(*a.optimizer), a.model.weight));

        // exchanged and back
        const auto weight = a.model.weight, average = averages(*a.optimizer);
        a.optimizer->swap_average();
        CHECK(same_bits(a.model.weight, average));
        a.optimizer->swap_average();
        CHECK(same_bits(a.model.weight, weight));
        CHECK(same_bits(averages(*a.optimizer), average));
    }
}

TEST_CASE("the_average_of_a_host_alone_follows_every_step_and_is_state") {
    Workers            workers(1);
    const OptimOptions options{.replicator = "none", .ema = 0.5f};
    SimHost            host(0, options, workers);
    auto               want = host.model.weight;
    for (uint64_t step = 0; step < 6; ++step) {
        CHECK(host.prepare(step).empty());
        host.optimizer->apply({.step = step, .has_mine = true});
        const double d = std::min(0.5, (1.0 + double(step)) / (10.0 + double(step)));
        for (size_t t = 0; t < want.size(); ++t) {
            for (size_t i = 0; i < want[t].size(); ++i) {
                want[t][i] += (1.0f - float(d)) * (host.model.weight[t][i] - want[t][i]);
            }
        }
    }
    const auto got = averages(*host.optimizer);
    for (size_t t = 0; t < want.size(); ++t) {
        for (size_t i = 0; i < want[t].size(); ++i) {
            REQUIRE(got[t][i] == Approx(want[t][i]).margin(1e-6));
        }
    }

    // resumed, it continues with the same bits
    SimHost resumed(0, options, workers);
    resumed.model.weight = host.model.weight;
    load(*resumed.optimizer, save(*host.optimizer));
    for (SimHost * each : {&host, &resumed}) {
        CHECK(each->prepare(6).empty());
        each->optimizer->apply({.step = 6, .has_mine = true});
    }
    CHECK(same_bits(averages(*host.optimizer), averages(*resumed.optimizer)));
}

TEST_CASE("a_rate_of_zero_keeps_a_tensor_as_it_is") {
    Workers workers(1);
    for (const char * rule : {"sgd", "adamw", "muon"}) {
        INFO(rule);
        const OptimOptions options{.replicator = "none", .rule = rule};
        SimModel           model;
        const auto         before = model.weight;
        auto               params = model.params(options);
        params[1].rate            = 0.0f;
        const auto optimizer      = make_optimizer(options, params, workers);
        model.set_gradients(0, 0);
        (void) optimizer->prepare(0, 0.01f);
        optimizer->apply({.step = 0, .has_mine = true});
        CHECK(model.weight[1] == before[1]);
        CHECK(model.weight[0] != before[0]);
        CHECK(model.weight[2] != before[2]);
    }
}
