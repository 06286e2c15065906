// Claims about a store that is lost or goes back to an older copy: the hosts hold what it lacks.
#include "tests/comm/sim/rounds-sim.h"

using namespace gt;
using namespace gt::sim;

using Values = std::map<std::string, Bytes>;

static Values copy_of(Store & store) {
    Values copy;
    for (const std::string & key : store.list("")) {
        copy[key] = *store.get(key);
    }
    return copy;
}

static void replace(Store & store, const Values & copy) {
    for (const std::string & key : store.list("")) {
        store.remove(key);
    }
    for (const auto & [key, value] : copy) {
        store.put(key, value);
    }
}

static uint64_t highest(const World & world) {
    uint64_t index = 0;
    for (const auto & host : world.hosts) {
        index = std::max(index, host->index());
    }
    return index;
}

// Every host is at the front of the run, and no fault has sent one back.
static void check_together(const World & world, uint64_t least) {
    for (const auto & host : world.hosts) {
        CHECK(host->index() > least);
        CHECK(host->index() + 3 > world.hosts[0]->index());
    }
}

// The ledger is strict: no commit is replaced by another one, no update is applied twice.
TEST_CASE("running_hosts_lose_no_round_with_the_store", "[rounds][lost]") {
    const int  overlap = GENERATE(0, 1);
    const bool elected = GENERATE(false, true);
    const bool is_copy = GENERATE(false, true);
    for (uint64_t seed = 1; seed <= n_seeds(1); ++seed) {
        INFO(
            "seed " << seed << " overlap " << overlap << " elected " << elected << " copy "
                    << is_copy
        );
        World world({.seed = seed, .n_hosts = 3, .overlap = overlap, .elected = elected});
        world.run(Millis(2'000));
        const Values copy = is_copy ? copy_of(world.store()) : Values();
        world.run(Millis(int64_t(2'000 + 10 * (random_bits(seed, 5) % 30))));
        const uint64_t lost = highest(world);
        REQUIRE(lost > 20);
        world.stop_hub();
        replace(world.store(), copy);
        world.run(Millis(10'000));
        check_together(world, lost + 20);
        CHECK(world.ledger.n_faults == 0);
        Host & late  = world.add();  // there is a checkpoint to load, and the rounds since
        late.is_new_ = true;
        world.run(Millis(5'000));
        check_together(world, lost + 50);
    }
}

// What no host has saved is gone; the host that has saved the most continues, and the others load it.
TEST_CASE("restarted_hosts_continue_a_run_whose_store_is_lost", "[rounds][lost]") {
    const int  overlap = GENERATE(0, 1);
    const bool elected = GENERATE(false, true);
    const bool is_copy = GENERATE(false, true);
    for (uint64_t seed = 1; seed <= n_seeds(1); ++seed) {
        INFO(
            "seed " << seed << " overlap " << overlap << " elected " << elected << " copy "
                    << is_copy
        );
        World world({.seed = seed, .n_hosts = 3, .overlap = overlap, .elected = elected});
        world.run(Millis(2'000));
        const Values copy = is_copy ? copy_of(world.store()) : Values();
        world.run(Millis(3'000));
        uint64_t saved = 0;
        for (const auto & host : world.hosts) {
            saved = std::max(saved, host->saved_index);
        }
        REQUIRE(saved > 20);
        world.stop_hub();
        replace(world.store(), copy);
        world.ledger.forget_after(saved);
        for (const auto & host : world.hosts) {
            host->stop();
        }
        world.run(Millis(40'000));
        check_together(world, saved + 50);
    }
}

// One host has saved what the others have, and begins with the lost store; the others still run.
TEST_CASE("a_restarted_host_does_not_take_running_ones_back", "[rounds][lost]") {
    const int  overlap = GENERATE(0, 1);
    const bool is_new  = GENERATE(false, true);  // it has saved nothing, and begins the run again
    for (uint64_t seed = 1; seed <= n_seeds(1); ++seed) {
        INFO("seed " << seed << " overlap " << overlap << " new " << is_new);
        World world({.seed = seed, .n_hosts = 3, .overlap = overlap});
        world.run(Millis(5'000));
        const uint64_t lost = highest(world);
        world.stop_hub();
        replace(world.store(), {});
        world.hosts[0]->stop();
        if (is_new) {
            world.hosts[0]->forget_saved();
            world.hosts[0]->tells_ledger = false;
        }
        world.run(Millis(4'000));
        world.hosts[0]->tells_ledger = true;
        world.run(Millis(20'000));
        check_together(world, lost + 50);
        CHECK(world.hosts[1]->last_fault == Fault::none);
        CHECK(world.hosts[2]->last_fault == Fault::none);
    }
}

// If all hosts crash at once, the rounds that none of them had saved are gone: the ledger is not strict.
TEST_CASE("crashes_while_a_lost_store_is_restored_lose_nothing", "[rounds][lost][faults]") {
    const int  overlap = GENERATE(0, 1);
    const bool elected = GENERATE(false, true);
    for (uint64_t seed = 1; seed <= n_seeds(1); ++seed) {
        INFO("seed " << seed << " overlap " << overlap << " elected " << elected);
        World world(
            {.seed = seed, .overlap = overlap, .elected = elected, .p_crash = 0.001, .p_drop = 0.02}
        );
        world.run(Millis(6'000));
        world.ledger.is_strict = false;
        for (int i = 0; i < 3; ++i) {
            world.stop_hub();
            replace(world.store(), {});
            world.run(Millis(20'000));
        }
        const uint64_t reached = highest(world);
        REQUIRE(world.settle(reached + 20));
        check_together(world, reached);
        for (const auto & host : world.hosts) {
            if (host->index() == world.hosts[0]->index()) {
                CHECK(host->state() == world.hosts[0]->state());
            }
        }
    }
}

// Anybody with the run's token can put a value under a key that a sequencer writes once.
TEST_CASE("values_that_are_no_commits_do_not_end_a_run", "[rounds][lost]") {
    const bool elected      = GENERATE(false, true);
    const bool is_restarted = GENERATE(false, true);
    INFO("elected " << elected << " restarted " << is_restarted);
    World world({.n_hosts = 3, .elected = elected});
    world.run(Millis(6'000));
    const RunPaths paths(world.keys().run);
    const uint64_t newest = highest(world);
    REQUIRE(CommitLog(world.store(), world.keys()).floor() > 2);
    const Bytes frame = make_record(world.keys(), {Kind::floor, 1, "sequencer", 0}, {});
    for (const uint64_t index : {uint64_t(1), newest + 1, newest + 2, newest + 50}) {
        world.store().put(paths.commit(index), index % 2 ? frame : Bytes(100), true);
    }
    world.store().put(paths.floor(newest + 1'000), Bytes(100));
    if (is_restarted) {
        world.stop_hub();
        for (const auto & host : world.hosts) {
            host->stop();
        }
    }
    world.run(Millis(20'000));
    check_together(world, newest + 60);
    CHECK(world.ledger.n_faults == 0);
    Host & late  = world.add();
    late.is_new_ = true;
    world.run(Millis(5'000));
    check_together(world, newest + 80);
}

// Fails at the first read of a commit.
class FailingStore : public ForwardingStore {
public:
    using ForwardingStore::ForwardingStore;
    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        if (key.find("/commit/") != key.npos && !std::exchange(has_failed, true)) {
            throw StoreError("the network is down");
        }
        return ForwardingStore::get(key, wait);
    }
    bool has_failed = false;
};

TEST_CASE("a_sequencer_that_fails_while_it_restores_tries_again", "[rounds][lost]") {
    World world({.n_hosts = 3});
    world.run(Millis(3'000));
    const auto     chain  = CommitLog(world.store(), world.keys()).load();
    const uint64_t newest = chain.back().commit.index;
    // another store with what a host has put back: the last commits, and the record
    const auto store = make_memory_store();
    for (size_t i = chain.size() - 3; i < chain.size(); ++i) {
        REQUIRE(CommitLog(*store, world.keys()).put_back(chain[i]));
    }
    const PresenceKey restored{PresenceKey::Kind::restored, "host0", newest};
    store->put(
        RunPaths(world.keys().run).presence(restored),
        make_record(world.keys(), head_of(restored), {})
    );
    FailingStore failing(*store);
    Sequencer    sequencer(failing, world.keys(), {});
    CHECK_THROWS_AS(sequencer.poll(world.now()), StoreError);
    (void) sequencer.poll(world.now());
    REQUIRE(sequencer.head());
    CHECK(sequencer.head()->index == newest);
}

TEST_CASE("a_hello_with_the_highest_number_does_not_lock_its_host_out", "[rounds][lost]") {
    World world({.n_hosts = 3});
    world.run(Millis(2'000));
    const auto     chain = CommitLog(world.store(), world.keys()).load();
    const uint64_t known = chain.back().commit.find("host0")->incarnation;
    world.store().put(RunPaths(world.keys().run).hello("host0", known + kMaxStarts), Bytes(100));
    world.hosts[0]->stop();
    world.run(Millis(20'000));
    const auto after = CommitLog(world.store(), world.keys()).load();
    CHECK(after.back().commit.message_of("host0"));
}

// A member says that it is stuck behind a commit that does not exist: a commit that followed it would end the
// run, because nobody could apply it.
TEST_CASE("a_host_that_is_stuck_behind_no_commit_undoes_nothing", "[rounds][lost]") {
    const bool is_true = GENERATE(false, true);  // true: the place is a commit
    INFO("true " << is_true);
    World world(
        {.n_hosts    = 1,
         .membership = {.min_hosts = 1, .min_deadline = Millis(200), .gone_after = Millis(8'000)}}
    );
    world.run(Millis(3'000));
    Host & host = *world.hosts[0];
    host.hold   = true;  // while it says nothing itself
    world.run(Millis(300));
    const auto     chain  = CommitLog(world.store(), world.keys()).load();
    const uint64_t newest = chain.back().commit.index;
    Key32          head   = chain[chain.size() - 2].digest;
    head[5] ^= is_true ? 0 : 1;
    const PresenceKey stuck{PresenceKey::Kind::stuck, "host0", newest};
    WireWriter        body;
    body.u64(newest - 1);
    body.raw(head);
    world.store().put(
        RunPaths(world.keys().run).presence(stuck),
        make_record(world.keys(), head_of(stuck), body.bytes())
    );
    world.run(Millis(10'000));
    host.hold              = false;
    world.ledger.is_strict = false;
    world.run(Millis(10'000));
    CHECK(world.ledger.n_undone == (is_true ? 1 : 0));
    CHECK(host.index() > newest + 20);
    CHECK(world.ledger.n_faults == (is_true ? 1 : 0));
}
