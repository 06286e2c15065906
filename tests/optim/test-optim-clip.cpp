// A host that explodes does not ruin the others; honest hosts are not touched.
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <cmath>

using namespace gt;

// The distance to a target, with gradients that point there, plus noise.
static double set_gradients(SimHost & host, uint64_t step) {
    double loss = 0.0;
    for (size_t t = 0; t < host.model.weight.size(); ++t) {
        for (size_t i = 0; i < host.model.weight[t].size(); ++i) {
            const float target = random_uniform(random_bits(17, t, i)) - 0.5f;
            const float noise  = random_uniform(random_bits(11, host.id, step, t << 32 | i)) - 0.5f;
            const float error  = host.model.weight[t][i] - target;
            host.model.grad[t][i] = error + 0.1f * noise;
            loss += static_cast<double>(error) * error;
        }
    }
    return loss;
}

// As if the host's gradients were 1e4 times as large, and wrong.
static void explode(SimHost & host, uint64_t step) {
    host.model.set_gradients(host.id, step);
    for (auto & grad : host.model.grad) {
        for (float & g : grad) {
            g *= 1e6f;
        }
    }
}

static std::vector<SimShape> small_shapes() {
    return {
        {"square", {32, 64, 1, 1}, ParamKind::matrix},
        {"vector", {130, 1, 1, 1}, ParamKind::vector}};
}

struct Outcome {
    double                          before = 0.0, after = 0.0;  // losses of the first host
    std::vector<std::vector<float>> weight;
};

// The last of four hosts explodes after a third of the steps.
static Outcome train(OptimOptions options, float clip, bool explodes) {
    constexpr uint64_t kSteps = 90;
    options.clip_messages     = clip;
    options.every             = steps_per_round(options) > 1 ? 3 : 1;
    Workers                               workers(1);
    std::vector<std::unique_ptr<SimHost>> hosts;
    for (int h = 0; h < 4; ++h) {
        hosts.push_back(std::make_unique<SimHost>(h, options, workers, small_shapes()));
    }
    Outcome out;
    for (uint64_t step = 0; step < kSteps; ++step) {
        Round round{.step = step, .has_mine = true};
        for (auto & host : hosts) {
            const double loss = set_gradients(*host, step);
            if (host == hosts[0]) {
                (step < kSteps / 3 ? out.before : out.after) = loss;
            }
            if (explodes && host == hosts[3] && step >= kSteps / 3) {
                explode(*host, step);
            }
            Bytes message = host->optimizer->prepare(step, 0.03f).message;
            if (!message.empty()) {
                round.messages.push_back({std::to_string(host->id), 1, std::move(message)});
            }
        }
        if (options.shares > 0 && !round.messages.empty()) {
            round = Shares(options, hosts[0]->model.params(options)).mean_round(round, 3);
        }
        for (auto & host : hosts) {
            host->optimizer->apply(round);
        }
    }
    out.weight = hosts[0]->model.weight;
    return out;
}

static std::vector<OptimOptions> all_that_are_clipped() {
    std::vector<OptimOptions> list;
    for (const auto & name : replicator_names()) {
        const OptimOptions options{
            .replicator = name.name, .rule = "sgd", .sign = "off", .top_k = 64};
        if (name.name != "none") {
            list.push_back(options);
            list.push_back(options);
            list.back().shares = 3;
        }
    }
    return list;
}

TEST_CASE("a_host_that_explodes_does_not_ruin_the_others") {
    for (const OptimOptions & options : all_that_are_clipped()) {
        INFO(options.replicator << ", shares " << options.shares);
        const Outcome clipped = train(options, OptimOptions().clip_messages, true);
        CHECK(clipped.after < clipped.before);
        const Outcome ruined = train(options, 0.0f, true);
        CHECK_FALSE(ruined.after < 10.0 * ruined.before);
    }
}

TEST_CASE("honest_hosts_are_not_clipped") {
    for (const OptimOptions & options : all_that_are_clipped()) {
        INFO(options.replicator << ", shares " << options.shares);
        const Outcome clipped = train(options, OptimOptions().clip_messages, false);
        CHECK(same_bits(clipped.weight, train(options, 0.0f, false).weight));
    }
}

TEST_CASE("norms_are_clipped_to_a_multiple_of_the_lower_median") {
    using Scales = std::vector<double>;
    CHECK(clip_scales(Scales{1, 2, 3, 1e4}, 4.0f) == Scales{1, 1, 1, 8e-4});
    CHECK(clip_scales(Scales{1, 2, 3, 1e4}, 0.0f) == Scales{1, 1, 1, 1});
    CHECK(clip_scales(Scales{0, 0, 0, 5}, 4.0f) == Scales{1, 1, 1, 1});  // only one has an update
    CHECK(clip_scales(Scales{1, 16}, 4.0f) == Scales{1, 0.25});
    CHECK(clip_scales(Scales{}, 4.0f).empty());
}
