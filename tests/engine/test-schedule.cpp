#include "ggml-train/base/fixed-math.h"
#include "ggml-train/run/schedule.h"
#include "tests/catch.h"

#include <cmath>
#include <cstring>
#include <map>

using namespace gt;

TEST_CASE("fixed_math_agrees_with_libm") {
    for (int i = 0; i <= 10000; ++i) {
        const double x = i / 10000.0;
        REQUIRE(std::fabs(fixed_cos_pi(x) - std::cos(M_PI * x)) < 4e-16);
    }
    for (double x = 1e-300; x < 1e300; x *= 1.37) {
        REQUIRE(fixed_log(x) == Approx(std::log(x)).epsilon(1e-15));
    }
    CHECK(fixed_cos_pi(0.0) == 1.0);
    CHECK(fixed_cos_pi(0.5) == 0.0);
    CHECK(fixed_cos_pi(1.0) == -1.0);
}

TEST_CASE("schedules_have_their_textbook_values") {
    Schedule s{.kind = "cosine", .lr = 0.5f, .min_ratio = 0.1f, .warmup = 10, .steps = 110};
    CHECK(s.at(0) == Approx(0.05));
    CHECK(s.at(9) == 0.5f);
    CHECK(s.at(10) == 0.5f);
    CHECK(s.at(60) == Approx(0.275));
    CHECK(s.at(110) == Approx(0.05));
    CHECK(s.at(100000) == Approx(0.05));
    for (int step = 10; step < 110; ++step) {
        CHECK(s.at(step) == Approx(0.05 + 0.225 * (1 + std::cos(M_PI * (step - 10) / 100.0))));
    }
    s.kind = "linear";
    CHECK(s.at(35) == Approx(0.5 - 0.45 * 0.25));
    s.kind = "constant";
    CHECK(s.at(109) == 0.5f);
    s.kind  = "wsd";
    s.decay = 0.2f;  // of 110: the last 22 steps
    CHECK(s.at(88) == 0.5f);
    CHECK(s.at(99) == Approx(0.275));
    CHECK(s.at(110) == Approx(0.05));
    s.warmup = -1;
    const std::map<int64_t, int64_t> usual{{1, 0},    {2, 1},    {10, 5},        {20, 10},
                                           {110, 10}, {600, 12}, {200'000, 2000}};
    for (const auto & [steps, warmup] : usual) {
        s.steps = steps;
        CHECK(s.warmup_steps() == warmup);
    }
    s.steps  = 110;
    s.warmup = 0;
    CHECK(s.at(0) == 0.5f);
}

TEST_CASE("schedule_bits_are_pinned") {
    // Every host must get these bits, with any compiler and libm.
    const Schedule s{
        .kind = "cosine", .lr = 3e-4f, .min_ratio = 0.1f, .warmup = 100, .steps = 10000};
    uint32_t digest = 0;
    for (uint64_t step = 0; step < 10100; step += 7) {
        const float lr   = s.at(step);
        uint32_t    bits = 0;
        std::memcpy(&bits, &lr, 4);
        digest = digest * 31 + bits;
    }
    CHECK(digest == 0x3b4a503fu);
}

TEST_CASE("invalid_schedules_are_refused") {
    CHECK_NOTHROW(Schedule{}.check());
    CHECK_THROWS_AS((Schedule{.kind = "step"}.check()), Error);
    CHECK_THROWS_AS((Schedule{.lr = 0.0f}.check()), Error);
    CHECK_THROWS_AS((Schedule{.min_ratio = 2.0f}.check()), Error);
    CHECK_THROWS_AS((Schedule{.steps = 0}.check()), Error);
}
