// What `plan` says about hub, bucket and lines.
#include "tests/catch.h"
#include "tools/train/cost.h"

using namespace gt;

static Hosts four_homes() {
    Hosts run;
    for (const char * name : {"anna", "ben", "cleo", "dora"}) {
        run.hosts.push_back({.name = name, .up = 20, .down = 100});
    }
    return run;
}

static Cost cost_of(const Hosts & run) {
    const std::vector<ParamView> params = {
        {.name = "w", .ne = {1024, 1024, 1, 1}, .kind = ParamKind::matrix}};
    return estimate({.replicator = "full", .wire = "q8"}, params, run, 1.0);
}

static Cost demo_cost(const Hosts & run) {
    const std::vector<ParamView> params = {
        {.name = "w", .ne = {4096, 4096, 1, 1}, .kind = ParamKind::matrix}};
    return estimate({.replicator = "demo"}, params, run, 1.0);
}

TEST_CASE("a_host_that_runs_the_hub_relays_everybodys_messages") {
    Hosts run             = four_homes();
    run.hosts[1].address  = "ben:7077";
    const Cost at_ben     = demo_cost(run);
    run.hosts[1].address  = "";
    run.store             = "file:///shared";
    const Cost without    = demo_cost(run);
    const auto rounds     = [](const Cost & cost) { return 86400.0 / cost.step_s; };
    const auto message_gb = static_cast<double>(at_ben.round_bytes) / 1e9;
    CHECK(at_ben.slowest == "ben");
    CHECK(at_ben.travel_s > 3.0 * without.travel_s);
    CHECK(
        at_ben.hub_gb_day == Approx(9 * message_gb * rounds(at_ben))
    );  // three each to three others
    CHECK(at_ben.up_gb_day == Approx(message_gb * rounds(at_ben)));
    CHECK(without.hub_gb_day == 0.0);
    const Cost shares = cost_of(run);
    const auto q8     = 1024.0 * (1024 + 2 * 16);
    CHECK(static_cast<double>(shares.round_bytes) == Approx(q8).epsilon(1e-3));
    CHECK(shares.down_gb_day == Approx(6e-9 / 4 * q8 * rounds(shares)).epsilon(1e-3));
    CHECK(shares.up_gb_day == Approx(5e-9 / 4 * q8 * rounds(shares)).epsilon(1e-3));
    CHECK(at_ben.disk_gb > 10 * 8e-9 * 4096 * 4096);  // ten checkpoints' worth of messages
    run.store            = "";
    run.direct           = true;
    run.hosts[1].address = "ben:7077";
    const Cost direct    = demo_cost(run);
    CHECK(direct.hub_gb_day == 0.0);
    CHECK(direct.up_gb_day == Approx(direct.down_gb_day));
}

TEST_CASE("sixteen_hosts_are_estimated_with_the_shares_that_their_run_would_have") {
    const std::vector<ParamView> params = {
        {.name = "w", .ne = {1024, 1024, 1, 1}, .kind = ParamKind::matrix}};
    const auto per_round = [&](size_t n_hosts, int64_t shares) {
        Hosts run;
        run.hosts.resize(n_hosts, {.name = "host", .up = 20, .down = 100});
        const Cost cost = estimate({.replicator = "loco", .shares = shares}, params, run, 1.0);
        return cost.down_gb_day * cost.step_s / static_cast<double>(cost.round_bytes);
    };
    CHECK(per_round(16, -1) == per_round(16, 16));
    CHECK(per_round(16, -1) < 0.5 * per_round(16, 0));
    CHECK(per_round(15, -1) == per_round(15, 0));
}

TEST_CASE("an_estimate_takes_no_other_host_with_an_address_for_the_hub") {
    Hosts all;
    all.hosts = {
        {.name = "zoe", .address = "zoe:7077", .up = 50}, {.name = "anna", .address = "anna:7077"}};
    const Hosts both = hosts_there(all, {"anna", "guest", "zoe"});
    REQUIRE(both.hosts.size() == 3);
    REQUIRE(both.hub());
    CHECK(both.hub()->name == "zoe");
    CHECK(both.hub()->up == 50.0);
    CHECK(both.find("guest")->up > 0.0);
    CHECK(hosts_there(all, {"anna"}).hub() == nullptr);  // a rented machine, which does not train
}

TEST_CASE("a_round_of_many_steps_hides_its_transfer_behind_as_many_as_it_may_travel") {
    const std::vector<ParamView> params = {
        {.name = "w", .ne = {4096, 4096, 1, 1}, .kind = ParamKind::matrix}};
    Hosts run         = four_homes();
    run.store         = "file:///shared";
    const auto rounds = [&](int64_t overlap) {
        const Cost cost = estimate(
            {.replicator = "diloco", .wire = "fp16", .overlap = overlap}, params, run, 1.0
        );
        CHECK(cost.travel_s > 0.5);  // 30 steps of 1 s, and more than 15 s of transfer
        CHECK(cost.travel_s < 1.0);
        return cost.up_gb_day;
    };
    CHECK(rounds(10) > 1.2 * rounds(0));
    CHECK(rounds(29) > 1.2 * rounds(10));
    CHECK(rounds(-1) == rounds(6));
}

TEST_CASE("a_bucket_is_paid_by_the_request") {
    Hosts run       = four_homes();
    run.store       = "s3://bucket/run";
    const Cost cost = demo_cost(run);
    const auto n    = 86400.0 / cost.step_s;  // rounds a day
    CHECK(cost.writes_day > 5 * n);           // four messages and a commit
    CHECK(cost.writes_day < 7 * n);
    CHECK(cost.reads_day > 12 * n);  // each message by three hosts
    CHECK(cost.reads_day < 100 * n);
    CHECK(
        cost.dollars_month ==
        Approx(30 * (4.5e-6 * cost.writes_day + 0.36e-6 * cost.reads_day) + 0.015 * cost.disk_gb)
    );
    run.store            = "";
    run.hosts[0].address = "anna:7077";
    CHECK(demo_cost(run).dollars_month == 0.0);
}
