// AdamW's moments in 8 bits.
#include "optim/rules/moments.h"
#include "optim/rules/rule.h"
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"

#include <cfloat>
#include <cmath>

using namespace gt;

namespace {

constexpr int64_t kN = cuda::kMomentBlock;

std::vector<float> through(const cuda::MomentCode & code, const std::vector<float> & x) {
    const auto           n = static_cast<int64_t>(x.size());
    std::vector<uint8_t> codes(x.size());
    std::vector<float>   y(x.size());
    const float          scale = encode_moments(code, x.data(), n, codes.data());
    decode_moments(code, scale, codes.data(), n, y.data());
    return y;
}

OptimOptions adamw(const char * moments, const char * replicator = "none") {
    return {.replicator = replicator, .rule = "adamw", .moments = moments};
}

}  // namespace

TEST_CASE("a_moment_of_8_bits_is_off_by_a_sixteenth_far_below_the_largest") {
    for (const bool second : {false, true}) {
        const auto &       code = second ? cuda::kSecondMoment : cuda::kFirstMoment;
        std::vector<float> x(kN);
        for (int64_t i = 0; i < kN; ++i) {
            const float depth = (second ? 31.6f : 15.6f) * random_uniform(random_bits(1, i));
            x[i]              = 3e-7f * std::exp2(-depth) * (second || i % 2 == 0 ? 1.0f : -1.0f);
        }
        x[7]         = 3e-7f;
        x[8]         = 0.0f;
        const auto y = through(code, x);
        CHECK(y[7] == x[7]);
        CHECK(y[8] == 0.0f);
        for (int64_t i = 0; i < kN; ++i) {
            INFO(x[i]);
            CHECK(std::fabs(y[i] - x[i]) <= std::fabs(x[i]) / 16.0f);
        }
        CHECK(through(code, y) == y);
    }
}

TEST_CASE("a_second_moment_of_8_bits_is_zero_only_if_it_was") {
    const std::vector<float> x = {1.0f, 1e-30f, 0.0f, 1e-9f};
    const auto               v = through(cuda::kSecondMoment, x);
    CHECK(v[1] > 0.0f);
    CHECK(v[2] == 0.0f);
    CHECK(v[3] > 0.0f);
    CHECK(through(cuda::kFirstMoment, x)[1] == 0.0f);
    // one that has overflowed does not become NaN
    CHECK(through(cuda::kSecondMoment, {INFINITY, 1.0f})[0] == FLT_MAX);
    CHECK(through(cuda::kSecondMoment, {0.0f, 0.0f}) == std::vector<float>{0.0f, 0.0f});
}

TEST_CASE("adamw_with_moments_of_8_bits_goes_where_it_goes_with_floats") {
    Workers    workers(2);
    SimHost    exact(0, adamw("f32"), workers), coarse(0, adamw("q8"), workers);
    const auto start = exact.model.weight;
    for (uint64_t step = 0; step < 60; ++step) {
        (void) exact.prepare(step);
        (void) coarse.prepare(step);
    }
    for (size_t t = 0; t < start.size(); ++t) {
        double apart2 = 0.0, way2 = 0.0;
        for (size_t i = 0; i < start[t].size(); ++i) {
            apart2 += std::pow(coarse.model.weight[t][i] - exact.model.weight[t][i], 2);
            way2 += std::pow(exact.model.weight[t][i] - start[t][i], 2);
        }
        INFO("tensor " << t);
        CHECK(apart2 <= 0.05 * 0.05 * way2);
        // vectors and 24 columns keep floats
        CHECK((apart2 == 0.0) == (t >= 3));
    }
}

TEST_CASE("moments_of_8_bits_take_a_quarter_and_resume_with_the_same_bits") {
    Workers workers(2);
    SimHost whole(0, adamw("q8"), workers), first(0, adamw("q8"), workers);
    for (uint64_t step = 0; step < 3; ++step) {
        (void) whole.prepare(step);
        (void) first.prepare(step);
    }
    SimHost second(0, adamw("q8"), workers);
    second.model.weight = first.model.weight;
    load(*second.optimizer, save(*first.optimizer));
    for (uint64_t step = 3; step < 6; ++step) {
        (void) whole.prepare(step);
        (void) second.prepare(step);
    }
    CHECK(same_bits(whole.model.weight, second.model.weight));
    CHECK(same_bits(save(*whole.optimizer).tensors, save(*second.optimizer).tensors));
    const auto state = save(*whole.optimizer).tensors;
    CHECK(state[0].size() == 116 * (1 + 96 / 4));  // a scale and codes
    CHECK(state[4].size() == 67 * (1 + 40 / 4));
    CHECK(state[6].size() == 30 * 24);
}

TEST_CASE("moments_of_8_bits_do_not_depend_on_the_ranks") {
    Workers            workers(2);
    const OptimOptions options = adamw("q8");
    SimModel           whole, parts;
    const auto         alone = make_optimizer(options, whole.params(options), workers);
    std::vector<std::unique_ptr<Optimizer>> ranks;
    for (int r = 0; r < 3; ++r) {
        ranks.push_back(make_optimizer(options, parts.params(options, r, 3), workers));
    }
    for (uint64_t step = 0; step < 4; ++step) {
        whole.set_gradients(0, step);
        parts.set_gradients(0, step);
        (void) alone->prepare(step, 0.01f);
        for (const auto & rank : ranks) {
            (void) rank->prepare(step, 0.01f);
        }
    }
    CHECK(same_bits(whole.weight, parts.weight));
    SimState joined = save(*ranks[0]);
    for (int r = 1; r < 3; ++r) {
        const SimState more = save(*ranks[r]);
        for (size_t i = 0; i < more.tensors.size(); ++i) {
            joined.tensors[i].insert(
                joined.tensors[i].end(), more.tensors[i].begin(), more.tensors[i].end()
            );
        }
    }
    CHECK(same_bits(joined.tensors, save(*alone).tensors));
}
