// Claims about rounds, checked by a ledger (rounds-sim.h) over many seeds. A failing seed is printed.
#include "tests/comm/sim/rounds-sim.h"

using namespace gt;
using namespace gt::sim;

TEST_CASE("four_hosts_apply_the_same_rounds", "[rounds]") {
    const int  overlap = GENERATE(0, 1);
    const bool elected = GENERATE(false, true);
    World      world({.overlap = overlap, .elected = elected});
    world.run(Millis(10'000));
    for (const auto & host : world.hosts) {
        CHECK(host->index() > 50);
        CHECK(host->n_left_out == 0);
    }
    CHECK(world.ledger.n_faults == 0);
}

TEST_CASE("crashes_between_any_two_operations_lose_nothing", "[rounds][faults]") {
    const int  overlap = GENERATE(0, 1);
    const bool elected = GENERATE(false, true);
    for (uint64_t seed = 1; seed <= n_seeds(6); ++seed) {
        INFO("seed " << seed << " overlap " << overlap << " elected " << elected);
        World world(
            {.seed = uint64_t(seed), .overlap = overlap, .elected = elected, .p_crash = 0.002}
        );
        world.run(Millis(40'000));
        const uint64_t reached = world.ledger.states.rbegin()->first;
        REQUIRE(world.ledger.n_crashes > 5);
        REQUIRE(world.settle(reached + 20));
    }
}

TEST_CASE("a_bad_store_delays_but_never_divides", "[rounds][faults]") {
    const int  overlap = GENERATE(0, 1);
    const bool elected = GENERATE(false, true);
    for (uint64_t seed = 1; seed <= n_seeds(6); ++seed) {
        INFO("seed " << seed << " overlap " << overlap << " elected " << elected);
        World world(
            {.seed      = uint64_t(seed),
             .overlap   = overlap,
             .elected   = elected,
             .p_crash   = 0.0005,
             .p_drop    = 0.1,
             .p_corrupt = 0.02}
        );
        world.run(Millis(40'000));
        const uint64_t reached = world.ledger.states.rbegin()->first;
        CHECK(reached > 20);
        REQUIRE(world.settle(reached + 20));
    }
}

TEST_CASE("sequencers_that_race_write_one_chain", "[rounds][faults]") {
    for (uint64_t seed = 1; seed <= n_seeds(4); ++seed) {
        INFO("seed " << seed);
        World world(
            {.seed = uint64_t(seed), .elected = true, .p_drop = 0.05, .takeover = Millis(300)}
        );
        std::set<std::string> writers;
        for (uint64_t i = 0; i < 30;
             ++i) {  // the sequencer is suspended, and resumes as if it still led
            world.run(Millis(500));
            const auto newest = CommitLog(world.store(), world.keys()).load();
            if (!newest.empty()) {
                writers.insert(newest.back().commit.writer);
                Host & leader = *world.hosts[size_t(newest.back().commit.writer.back() - '0')];
                leader.hold   = true;
                world.run(Millis(int64_t(random_bits(uint64_t(seed), i) % 1500)));
                leader.hold = false;
            }
        }
        CHECK(writers.size() > 1);
        CHECK(world.ledger.n_faults == 0);  // with atomic create no commit is ever lost
        const uint64_t reached = world.ledger.states.rbegin()->first;
        REQUIRE(world.settle(reached + 20));
    }
}

TEST_CASE("a_slow_host_delays_no_round_and_is_listed_when_in_time", "[rounds]") {
    World world({.n_hosts = 4});
    world.hosts[3]->compute = Millis(400);
    world.run(Millis(5'000));  // the first rounds wait for it
    const uint64_t before = world.hosts[0]->index(), counted = world.hosts[3]->n_listed;
    world.run(Millis(20'000));
    const uint64_t n = world.hosts[0]->index() - before;
    CHECK(n > 150);  // 110 to 120 ms each; at its pace it would be 50
    CHECK(world.hosts[3]->n_listed - counted > 35);  // it sends every 400 ms
    CHECK(world.ledger.n_faults == 0);
}

TEST_CASE("joining_leaving_and_returning", "[rounds]") {
    const int overlap = GENERATE(0, 1);
    World     world({.n_hosts = 3, .overlap = overlap});
    world.run(Millis(6'000));
    Host & late = world.add();
    world.run(Millis(6'000));
    CHECK(late.index() > 80);
    CHECK(late.n_listed > 20);
    CHECK(world.ledger.n_loads >= 1);  // from the shared checkpoint, not from the beginning
    late.leave();
    world.run(Millis(3'000));
    const uint64_t left_out = world.hosts[0]->n_left_out;
    late.is_on              = true;
    world.run(Millis(3'000));
    CHECK(late.index() + 3 > world.hosts[0]->index());
    CHECK(world.hosts[0]->n_left_out == left_out);

    world.hosts[1]->is_on = false;  // killed; restarted much later
    world.hosts[1]->stop();
    world.run(Millis(30'000));
    world.hosts[1]->is_on = true;
    world.run(Millis(10'000));
    CHECK(world.hosts[1]->index() + 3 > world.hosts[0]->index());
    CHECK(world.ledger.n_faults == 0);
}

TEST_CASE("a_run_continues_after_all_hosts_have_restarted", "[rounds]") {
    const bool elected = GENERATE(false, true);
    World      world({.n_hosts = 3, .elected = elected});
    world.run(Millis(6'000));
    const uint64_t reached = world.ledger.states.rbegin()->first;
    CHECK(reached > 30);
    REQUIRE(world.settle(reached + 20));  // stops all, the hub too
}

TEST_CASE("a_diverged_host_joins_again", "[rounds]") {
    const int overlap = GENERATE(0, 1);
    World     world({.n_hosts = 4, .overlap = overlap});
    world.run(Millis(4'000));
    Host & sick       = *world.hosts[2];
    sick.tells_ledger = false;
    sick.corrupt_state();
    world.run(Millis(1'000));
    CHECK(sick.last_fault == Fault::diverged);
    CHECK(world.ledger.n_faults == 1);
    sick.tells_ledger = true;
    sick.last_fault   = Fault::none;
    world.run(Millis(4'000));
    CHECK(sick.index() + 3 > world.hosts[0]->index());
    CHECK(world.ledger.n_faults == 1);
}

// Takes the newest listed message of `host` out of the store, as soon as it is committed.
static void lose_message(World & world, const std::string & host) {
    CommitLog      log(world.store(), world.keys());
    const Commit   newest = log.load().back().commit;
    const RunPaths paths(world.keys().run);
    const auto *   message = newest.message_of(host);
    REQUIRE(message);
    world.store().remove(paths.message({newest.index, host, message->incarnation}));
}

TEST_CASE("a_lost_message_is_put_again_by_its_holder", "[rounds]") {
    Options options{.n_hosts = 3};
    options.membership.quorum = 1;  // the others wait, too
    World world(options);
    world.run(Millis(2'005));
    world.hosts[2]->hold = true;  // inactive while the message is removed
    world.run(Millis(300));
    lose_message(world, "host0");
    world.hosts[2]->hold = false;
    world.run(Millis(20'000));
    CHECK(world.hosts[2]->index() + 3 > world.hosts[0]->index());
    CHECK(world.ledger.n_faults == 0);
}

TEST_CASE("a_message_lost_for_all_is_absent_for_all", "[rounds]") {
    World world({.n_hosts = 3});
    world.run(Millis(2'000));
    world.lose_next_of = "host1";  // right after its commit, before any host has fetched it
    world.run(Millis(500));
    REQUIRE(world.lose_next_of.empty());
    world.hosts[1]->stop();  // it had a copy of its own message
    world.hosts[1]->is_on = false;
    world.run(Millis(30'000));
    CHECK(world.ledger.n_undone == 1);
    CHECK(world.hosts[0]->index() > 100);
    CHECK(world.ledger.n_faults == 0);
    world.hosts[1]->is_on = true;
    world.run(Millis(5'000));
    CHECK(world.hosts[1]->index() + 3 > world.hosts[0]->index());
}

TEST_CASE("a_stuck_host_loads_a_later_checkpoint", "[rounds]") {
    World world({.n_hosts = 3});
    world.run(Millis(2'005));
    world.hosts[2]->hold = true;
    world.run(Millis(300));
    lose_message(world, "host0");
    world.hosts[2]->hold = false;
    world.run(Millis(10'000));
    CHECK(world.hosts[2]->last_fault == Fault::expired);
    CHECK(world.hosts[2]->index() + 3 > world.hosts[0]->index());
    CHECK(world.ledger.n_faults == 1);
}

TEST_CASE("the_store_stays_small", "[rounds]") {
    World world({.n_hosts = 3});
    world.run(Millis(5'000));
    const size_t before = world.store().list("").size();
    world.run(Millis(40'000));
    CHECK(world.store().list("").size() < 2 * before);
    CHECK(world.hosts[0]->index() > 300);
}

TEST_CASE("a_host_that_applied_a_lost_commit_joins_again", "[rounds]") {
    World world({.n_hosts = 3});
    world.run(Millis(4'000));
    world.ledger.is_strict = false;
    // host2 sees nothing for a while; the others have applied the newest commit when it is replaced
    world.hosts[2]->hold = true;
    world.run(Millis(60));
    Commit other = CommitLog(world.store(), world.keys()).load().back().commit;
    REQUIRE(other.index == world.hosts[0]->index());
    REQUIRE(other.messages.size() > 1);
    other.messages.pop_back();
    ++other.pace_ms;
    const RunPaths paths(world.keys().run);
    world.store().put(paths.commit(other.index), encode_commit(world.keys(), other));
    world.stop_hub();
    world.hosts[2]->hold = false;
    world.run(Millis(10'000));
    CHECK(world.ledger.n_faults >= 2);  // the two that had applied it
    CHECK(world.hosts[0]->last_fault == Fault::forked);
    for (const auto & host : world.hosts) {
        CHECK(host->index() > other.index + 20);
        CHECK(host->index() + 2 > world.hosts[0]->index());
        if (host->index() == world.hosts[0]->index()) {
            CHECK(host->state() == world.hosts[0]->state());
        }
    }
}
