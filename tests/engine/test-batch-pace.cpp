#include "ggml-train/run/batch-pace.h"
#include "tests/catch.h"

using namespace gt;

TEST_CASE("a_slow_host_computes_what_fits_and_others_their_whole_batch") {
    Pace pace(8);
    CHECK(pace.n_micro() == 8);  // nothing is measured yet
    pace.measured(8, 4.0);
    CHECK(pace.n_micro() == 8);  // alone
    pace.others(1.0);
    CHECK(pace.n_micro() == 1);  // one of 0.5 s fits in 0.9 s
    pace.others(2.0);
    CHECK(pace.n_micro() == 3);
    pace.others(2.7);  // 4.0 s is within the deadline of 1.5 * 2.7 s
    CHECK(pace.n_micro() == 8);
    pace.others(0.01);
    CHECK(pace.n_micro() == 1);  // at least one
}

TEST_CASE("a_host_that_becomes_faster_computes_its_whole_batch_again") {
    Pace pace(4);
    pace.measured(4, 8.0);
    pace.others(2.0);
    CHECK(pace.n_micro() == 1);
    for (int i = 0; i < 4; ++i) {
        pace.measured(pace.n_micro(), 0.5 * static_cast<double>(pace.n_micro()));
    }
    CHECK(pace.n_micro() == 4);
}

TEST_CASE("short_steps_are_never_reduced") {
    Pace pace(4);
    pace.measured(4, 0.4);
    pace.others(0.001);
    CHECK(pace.n_micro() == 4);
}
