// Claims about hosts and hubs that are wrong or hostile, and about lines that are slow; checked by the
// ledger of rounds-sim.h.
#include "tests/comm/sim/rounds-sim.h"
#include "tests/scratch.h"

using namespace gt;
using namespace gt::sim;

TEST_CASE("a_host_that_always_diverges_stops_with_an_error", "[rounds]") {
    World  world({.n_hosts = 4});
    Host & sick = *world.hosts[2];
    world.run(Millis(4'000));
    sick.tells_ledger = false;
    sick.skew         = 1;
    const auto fails  = [&] { world.run(Millis(60'000)); };
    CHECK(error_of(fails).find("computes another state than the others") != std::string::npos);
    CHECK(world.ledger.n_faults == 2);  // the third one is the error
}

// Two processes that list presences before either has announced itself.
TEST_CASE("two_processes_of_one_name_never_share_an_incarnation", "[rounds]") {
    class Stale : public ForwardingStore {
    public:
        explicit Stale(Store & inner) : ForwardingStore(inner), inner_(inner) {}
        bool put(const std::string & key, std::span<const uint8_t> value, bool once) override {
            return inner_.put(key, value, once);
        }
        std::vector<std::string> list(const std::string &) override { return {}; }

    private:
        Store & inner_;
    };
    const RunKeys keys  = keys_from_secret(Key32{1});
    RunKeys       clone = keys;
    clone.process       = Key32{2};
    const auto store    = make_memory_store();
    Stale      stale(*store);
    Presence   one(stale, keys, "ben", false), other(stale, clone, "ben", false);
    one.announce(nullptr, false);
    other.announce(nullptr, false);
    CHECK(one.state() == Presence::State::announced);
    CHECK(other.state() == Presence::State::absent);
    one.announce(nullptr, false);  // an answer was lost: the same bytes win again
    CHECK(one.state() == Presence::State::announced);
}

TEST_CASE("an_absurd_incarnation_does_not_lock_a_name_out", "[rounds]") {
    World          world({.n_hosts = 3});
    const RunPaths paths(world.keys().run);
    for (const uint64_t absurd : {~0ull, 1ull << 62}) {
        world.store().put(
            paths.hello("host1", absurd),
            make_record(world.keys(), {Kind::presence, 0, "host1", absurd}, {})
        );
    }
    world.run(Millis(3'000));
    CHECK(world.hosts[1]->n_listed > 10);
    world.hosts[1]->stop();  // and returns
    world.run(Millis(4'000));
    CHECK(world.hosts[1]->index() + 3 > world.hosts[0]->index());
}

TEST_CASE("a_slice_of_an_absurd_size_does_not_end_the_run", "[rounds]") {
    World          world({.n_hosts = 3});
    const RunPaths paths(world.keys().run);
    WireWriter     body;
    body.u32(0);
    body.u64(0);
    body.u64(1ull << 41);
    body.u32(1);
    body.raw(Key32{});
    for (uint64_t index = 0; index < 200; ++index) {
        for (const char * host : {"host0", "host1", "host2"}) {
            world.store().put(
                paths.ready({index, host, 1}, 0),
                make_record(world.keys(), {Kind::ready, index, host, 1}, body.bytes())
            );
        }
    }
    world.run(Millis(10'000));
    CHECK(world.hosts[0]->index() > 50);
}

// A hub that tells one host another story: without the message of host0 in one round.
class TwoFacedStore : public ForwardingStore {
public:
    TwoFacedStore(Store & inner, const RunKeys & keys, uint64_t from)
        : ForwardingStore(inner), keys_(keys), from_(from) {}

    std::optional<Bytes> get(const std::string & key, Millis wait) override {
        const auto value = ForwardingStore::get(key, wait);
        const auto about = RunPaths(keys_.run).parse_commit(key);
        if (!value || !about || *about < from_) {
            return value;
        }
        Commit commit = *parse_commit(keys_, *about, *value);
        if (commit.index == from_) {
            std::erase_if(commit.messages, [](const auto & one) { return one.host == "host0"; });
        } else {
            commit.previous = digests_[commit.index - 1];
        }
        commit.diverged.clear();
        const Bytes other      = encode_commit(keys_, commit);
        digests_[commit.index] = digest256(other);
        return other;
    }

private:
    const RunKeys &           keys_;
    uint64_t                  from_;
    std::map<uint64_t, Key32> digests_;
};

TEST_CASE("a_hub_that_tells_two_stories_is_noticed", "[rounds]") {
    World world({.n_hosts = 2});
    world.ledger.is_strict = false;
    TwoFacedStore liar(world.store(), world.keys(), 30);
    world.hosts.push_back(
        std::make_unique<Host>(liar, world.keys(), world.options(), "host2", world.ledger)
    );
    const auto fails = [&] { world.run(Millis(60'000)); };
    CHECK(error_of(fails).find("tells the other hosts another history") != std::string::npos);
}

TEST_CASE("a_checkpoint_that_takes_longer_than_the_interval_is_completed", "[rounds]") {
    World world({.n_hosts = 3});
    world.hosts[0]->part_rounds = 15;  // the interval is 10 rounds
    world.run(Millis(10'000));
    const size_t before = world.store().list("").size();
    size_t       most   = 0;
    for (int i = 0; i < 20; ++i) {
        world.run(Millis(2'000));
        most = std::max(most, world.hosts[0]->n_parts());
    }
    const Commit newest = CommitLog(world.store(), world.keys()).load().back().commit;
    REQUIRE(newest.complete_at != kNone);
    CHECK(newest.complete_at + 100 > newest.index);
    CHECK(newest.index > 300);
    CHECK(most <= 2);
    CHECK(world.store().list("").size() < 2 * before);
}

TEST_CASE("a_joining_host_gets_a_fresh_checkpoint", "[rounds]") {
    Options options{.n_hosts = 3};
    options.membership.checkpoint_every = 1'000'000;
    World world(options);
    world.run(Millis(20'000));
    const uint64_t reached = world.hosts[0]->index();
    Host &         late    = world.add();
    late.is_new_           = true;  // without the initial weights
    world.run(Millis(5'000));
    CHECK(late.index() + 3 > world.hosts[0]->index());
    CHECK(late.first_index >= reached);  // replayed nothing of the past
    CHECK(world.ledger.n_loads == 1);
}

// Rounds take 130 ms, or 200 if they wait for a member; 40 close while a checkpoint is written.
TEST_CASE("a_joining_host_that_replays_slower_than_rounds_close_gets_there", "[rounds]") {
    Options options{.n_hosts = 3};
    options.membership.checkpoint_every = 100;
    World world(options);
    for (const auto & host : world.hosts) {
        host->part_rounds = 40;
    }
    world.run(Millis(20'000));
    Host & late  = world.add();
    late.is_new_ = true;
    late.compute = Millis(10);
    late.apply   = Millis(130);
    world.run(Millis(40'000));
    const uint64_t before = late.n_listed;
    world.run(Millis(10'000));
    CHECK(late.n_listed > before + 30);
    CHECK(late.index() + 3 > world.hosts[0]->index());
    CHECK(world.ledger.n_loads < 5);
}

// It can't be a member: every round would have to wait for it.
TEST_CASE("a_joining_host_that_is_far_too_slow_delays_few_rounds", "[rounds]") {
    Options options{.n_hosts = 3};
    options.membership.checkpoint_every = 100;
    World world(options);
    world.run(Millis(5'000));
    Host & late  = world.add();
    late.is_new_ = true;
    late.apply   = Millis(1'000);
    world.run(Millis(5'000));
    const uint64_t before = world.hosts[0]->index();
    world.run(Millis(60'000));
    CHECK(world.hosts[0]->index() > before + 400);  // 540 without it
    CHECK(world.hosts[0]->n_left_out == 0);
}

TEST_CASE("hosts_follow_a_store_that_was_restored_from_an_older_copy", "[rounds]") {
    const int  overlap = GENERATE(0, 1);
    const bool restart = GENERATE(false, true);
    INFO("overlap " << overlap << " restart " << restart);
    World world({.n_hosts = 3, .overlap = overlap});
    world.run(Millis(3'000));
    std::map<std::string, Bytes> copy;
    for (const std::string & key : world.store().list("")) {
        copy[key] = *world.store().get(key);
    }
    const uint64_t copied = world.hosts[0]->index();
    world.run(Millis(3'000));
    const uint64_t lost = world.hosts[0]->index();
    REQUIRE(lost > copied + 10);
    world.ledger.is_strict = false;
    world.stop_hub();
    for (const std::string & key : world.store().list("")) {
        world.store().remove(key);
    }
    for (const auto & [key, value] : copy) {
        world.store().put(key, value);
    }
    for (const auto & host : world.hosts) {
        if (restart) {
            host->stop();
        }
    }
    world.run(Millis(60'000));
    for (const auto & host : world.hosts) {
        CHECK(host->index() > lost + 50);
        CHECK(host->index() + 3 > world.hosts[0]->index());
        if (host->index() == world.hosts[0]->index()) {
            CHECK(host->state() == world.hosts[0]->state());
        }
    }
}

TEST_CASE("a_host_names_where_it_stands", "[rounds]") {
    using Standing      = RoundClient::Standing;
    const RunKeys keys  = keys_from_secret(Key32{5});
    const auto    store = make_memory_store();
    Sequencer     sequencer(*store, keys, {});
    Time          now{std::chrono::hours(1)};
    const auto    upload = [&](const std::string & key, const Bytes & value, uint64_t) {
        store->put(key, value);
    };
    const auto make = [&](const char * name) {
        return RoundClient(*store, keys, {.host = name, .n_fetch = 1}, upload);
    };
    RoundClient anna = make("anna"), ben = make("ben");
    const auto  round = [&] {
        CHECK(anna.n_behind(now) == 0);
        anna.publish(anna.next_index() - 1, Phase::single, 1, {});
        now += Millis(100);
        REQUIRE(sequencer.poll(now));
        REQUIRE(anna.try_next({}, now));
    };
    CHECK(anna.standing() == Standing::joining);
    CHECK_FALSE(anna.try_join({}, true, now));
    REQUIRE(sequencer.poll(now));
    REQUIRE(anna.try_join({}, true, now));
    CHECK(anna.standing() == Standing::replaying);
    round();
    CHECK(anna.standing() == Standing::member);
    round();
    REQUIRE(ben.try_join({}, true, now));
    CHECK(ben.n_behind(now) == 2);
    CHECK(ben.standing() == Standing::replaying);
    REQUIRE(ben.try_next({}, now));
    REQUIRE(ben.try_next({}, now));
    CHECK(ben.n_behind(now) == 1);
    CHECK(ben.standing() == Standing::waiting);
    sequencer.note(RunPaths(keys.run).hello("ben", 1), now);
    round();
    REQUIRE(ben.try_next({}, now));
    CHECK(ben.n_behind(now) == 0);
    CHECK(ben.standing() == Standing::member);
    // the store loses a listed message, then says that rounds before it are removed
    anna.publish(anna.next_index() - 1, Phase::single, 1, {});
    now += Millis(100'000);
    REQUIRE(sequencer.poll(now));
    store->remove(RunPaths(keys.run).message({4, "anna", 1}));
    CHECK_FALSE(ben.try_next({}, now));
    CHECK(ben.standing() == Standing::stuck);
    const RecordHead floor{Kind::floor, 9, "sequencer", 0};
    store->put(RunPaths(keys.run).floor(9), make_record(keys, floor, {}));
    CHECK_FALSE(ben.try_next({}, now + Millis(60'000)));
    CHECK(ben.standing() == Standing::faulted);
    CHECK(ben.try_next({}, now)->fault == Fault::expired);
}

TEST_CASE("a_hundred_hosts_have_one_state", "[rounds]") {
    World world({.n_hosts = 100, .p_crash = 0.0001, .p_drop = 0.001});
    for (size_t i = 0; i < world.hosts.size(); ++i) {
        world.hosts[i]->compute = Millis(100 + 3 * i);  // the slowest needs four times as long
    }
    world.hosts[99]->is_on = false;  // joins later
    world.run(Millis(4'000));
    world.hosts[99]->is_on = true;
    world.hosts[7]->leave();
    world.run(Millis(4'000));
    REQUIRE(world.settle(world.hosts[0]->index() + 3, Millis(30'000)));
    const auto chain = CommitLog(world.store(), world.keys()).load();
    size_t     n     = 0;  // messages of the last eight rounds
    for (size_t i = chain.size() - 8; i < chain.size(); ++i) {
        n += chain[i].commit.messages.size();
    }
    CHECK(chain.back().commit.index > 15);
    CHECK(n > 8 * 60);
    CHECK(world.ledger.n_crashes > 0);
    CHECK(world.ledger.spent.size() > 1000);
}
