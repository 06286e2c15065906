#include "ggml-train/run/run-status.h"
#include "tests/catch.h"

using namespace gt;

static double g_now = 0.0;

static RunStatus status_of(const std::string & host) {
    g_now = 100.0;
    return RunStatus(
        {.run = "small-run", .model = "gpt", .host = host, .steps = 100, .batch = 8},
        [] { return g_now; }
    );
}

static StepRecord record(uint64_t step, std::vector<HostReport> hosts) {
    StepRecord r{.step = step, .loss = 3.0f, .n_samples = 8, .round = step};
    r.up_bytes   = 1000 * step;
    r.down_bytes = 2000 * step;
    r.hosts      = std::move(hosts);
    return r;
}

static HostReport sent(const std::string & name, uint64_t samples, double loss) {
    return {.name = name, .is_member = true, .in = true, .samples = samples, .loss = loss};
}

TEST_CASE("a_run_alone_has_a_title_a_curve_and_no_zero_before_its_first_step") {
    RunStatus status = status_of("this machine");
    status.idle("waiting", "waiting for the data");
    CHECK_THAT(
        status.json(),
        ContainsSubstring("\"state\":\"waiting\",") && ContainsSubstring("waiting for the data")
    );
    CHECK_THAT(status.json(), !ContainsSubstring("\"loss\"") && ContainsSubstring("\"curve\":[]"));
    status.eval(0, 5.5, -1.0);
    status.step(record(1, {}), 1234.0, 10.0, 990.0);
    status.sample(1, "In the <beginning>");
    const std::string json = status.json();
    CHECK_THAT(
        json,
        ContainsSubstring("\"run\":\"small-run\"") && ContainsSubstring("\"step\":1,\"steps\":100")
    );
    CHECK_THAT(
        json, ContainsSubstring("\"seconds_left\":990.0") && ContainsSubstring("\"units_s\":1234.0")
    );
    CHECK_THAT(
        json,
        ContainsSubstring("\"validation\":[[0,5.5]]") && ContainsSubstring("\"curve\":[[1,3.0]]")
    );
    CHECK_THAT(json, ContainsSubstring("\"samples\":8") && ContainsSubstring("In the <beginning>"));
    CHECK_THAT(json, !ContainsSubstring("up_day") && !ContainsSubstring("accuracy"));
    status.ended(true);
    CHECK_THAT(status.json(), ContainsSubstring("\"state\":\"finished\""));
}

TEST_CASE("a_killed_host_is_late_then_gone_and_one_that_leaves_has_left") {
    RunStatus  status = status_of("anna");
    uint64_t   step   = 0;
    const auto round  = [&](std::vector<HostReport> others) {
        g_now += 1.0;
        others.push_back(sent("anna", 8, 3.0));
        status.step(record(++step, std::move(others)), 10.0, 1.0, 1.0);
        return status.json();
    };
    // the first message of a host has no loss: its curve begins with the second one
    CHECK_THAT(round({sent("ben", 4, 0.0)}), ContainsSubstring("\"age\":0.0,\"samples\":4,"));
    CHECK_THAT(
        round({sent("ben", 4, 2.5)}),
        ContainsSubstring("\"curve\":[[2,2.5]]") && !ContainsSubstring("[1,0.0]")
    );
    const HostReport late{.name = "ben", .is_member = true}, removed{.name = "ben"};
    round({late});
    round({late});
    CHECK_THAT(
        round({late}), ContainsSubstring("\"state\":\"late\",\"age\":3.0") &&
                           ContainsSubstring("ben has sent nothing since step 2\"")
    );
    CHECK_THAT(
        round({removed}),
        ContainsSubstring("\"state\":\"gone\"") &&
            ContainsSubstring("ben is gone since step 2; the run continues without it")
    );
    CHECK_THAT(
        round({sent("ben", 8, 2.4)}),
        ContainsSubstring("ben is back") && !ContainsSubstring("\"state\":\"gone\"")
    );
    CHECK_THAT(
        round({removed}),
        ContainsSubstring("\"state\":\"left\"") && ContainsSubstring("ben left after step 7")
    );
    // a host that was never seen is not shown
    CHECK_THAT(round({{.name = "cleo"}}), !ContainsSubstring("cleo"));
}

TEST_CASE("traffic_per_day_is_that_of_the_last_steps_after_a_warm_up") {
    RunStatus status = status_of("anna");
    for (uint64_t step = 1; step <= 9; ++step) {
        g_now += 100.0;  // slow at first
        status.step(record(step, {}), 1.0, 1.0, 1.0);
    }
    CHECK(status.per_day().up == 0.0);
    for (uint64_t step = 10; step <= 300; ++step) {
        g_now += 2.0;
        status.step(record(step, {}), 1.0, 1.0, 1.0);
    }
    CHECK(status.per_day().up == Approx(1000.0 / 2.0 * 86400.0));
    CHECK(status.per_day().down == Approx(2000.0 / 2.0 * 86400.0));
}
