// Who is who in a run: keys of hosts, removal, and records that a hub can't make.
#include "comm/run/host-key.h"
#include "comm/run/run-model.h"
#include "comm/sequencer/run-settings.h"
#include "tests/comm/sim/rounds-sim.h"
#include "tests/scratch.h"

#include <filesystem>
#include <fstream>

using namespace gt;
using namespace gt::sim;

static RunKeys of_another_machine(RunKeys keys) {
    keys.host_seed = Key32{9};
    return keys;
}

static bool has(const std::string & text, const char * part) {
    return text.find(part) != std::string::npos;
}

TEST_CASE("a_message_is_signed_by_its_host", "[identity]") {
    const RunKeys   keys = keys_from_secret(Key32{1}), other = of_another_machine(keys);
    const MessageId id{5, "anna", 2};
    const Bytes     body{1, 2, 3};
    Bytes           value = make_message(keys, id, {.n_body_bytes = 3}, body);
    CHECK(parse_message_head(keys.run, id, value)->signer == public_key(keys.host_seed));
    CHECK_FALSE(parse_message_head(keys.run, {6, "anna", 2}, value));
    value = make_message(other, id, {.n_body_bytes = 3}, body);
    CHECK(open_message(keys, id, value));  // it has the run's secret
    CHECK(parse_message_head(keys.run, id, value)->signer == public_key(other.host_seed));
}

TEST_CASE("a_message_that_another_machine_made_under_our_name_is_not_listed", "[identity]") {
    const bool     is_other = GENERATE(false, true);
    World          world({.n_hosts = 3});
    const RunKeys  maker = is_other ? of_another_machine(world.keys()) : world.keys();
    const RunPaths paths(world.keys().run);
    world.run(Millis(3'000));
    world.hosts[1]->is_on = false;
    world.run(Millis(1'000));
    const uint64_t next = world.hosts[0]->index() + 3;
    for (uint64_t index = next; index < next + 5; ++index) {
        const MessageId id{index, "host1", 1};
        world.store().put(
            paths.message(id),
            make_message(maker, id, {.step = index - 1, .base_index = 1 << 20}, {})
        );
    }
    world.run(Millis(4'000));
    size_t n_listed = 0;
    for (const ChainEntry & entry : CommitLog(world.store(), world.keys()).load()) {
        n_listed += entry.commit.index >= next && entry.commit.message_of("host1") ? 1 : 0;
    }
    CHECK((n_listed > 0) == !is_other);
    CHECK(world.hosts[0]->index() > next + 10);
}

TEST_CASE("an_impostor_of_a_name_is_refused_and_told_so", "[identity]") {
    World         world({.n_hosts = 3});
    const RunKeys other = of_another_machine(world.keys());
    world.run(Millis(3'000));
    world.hosts.push_back(
        std::make_unique<Host>(world.store(), other, world.options(), "host1", world.ledger)
    );
    CHECK(has(error_of([&] { world.run(Millis(6'000)); }), "knows another machine as 'host1'"));
    world.hosts.pop_back();
    const uint64_t before = world.hosts[1]->n_listed;
    world.run(Millis(3'000));
    CHECK(world.hosts[1]->n_listed > before + 5);
}

// A copy of a machine: the same key, another process.
static RunKeys of_a_clone(RunKeys keys) {
    keys.process = Key32{7};
    return keys;
}

static void add_clone(World & world, const char * name) {
    world.hosts.push_back(std::make_unique<Host>(
        world.store(), of_a_clone(world.keys()), world.options(), name, world.ledger
    ));
}

TEST_CASE("a_clone_is_refused_while_the_host_takes_part", "[identity]") {
    const int  overlap = GENERATE(0, 1);
    const bool elected = GENERATE(false, true);
    World      world({.n_hosts = 3, .overlap = overlap, .elected = elected});
    world.run(Millis(3'000));
    add_clone(world, "host1");
    CHECK(
        has(error_of([&] { world.run(Millis(2'000)); }),
            "another process takes part as 'host1', last listed in round ")
    );
    world.hosts.pop_back();
    const uint64_t before = world.hosts[1]->n_listed;
    world.run(Millis(3'000));
    CHECK(world.hosts[1]->n_listed > before + 20);
    CHECK(world.hosts[1]->n_left_out == 0);
    CHECK(world.ledger.n_faults == 0);
}

TEST_CASE("a_clone_is_refused_before_the_run_begins", "[identity]") {
    World world({.n_hosts = 1});
    world.run(Millis(1'000));
    add_clone(world, "host0");
    const auto waits = [&] { world.run(Millis(1'000)); };
    CHECK(has(error_of(waits), "another process waits as 'host0' for the run to begin"));
    world.hosts[0]->stop();  // it is killed and returns: nobody else has its name
    CHECK(has(error_of(waits), "another process waits as 'host0' for the run to begin"));
    world.hosts.pop_back();
    world.run(Millis(1'000));
    CHECK(world.store().list(RunPaths(world.keys().run).presences("host0")).size() == 2);
}

TEST_CASE("of_two_clones_that_start_together_one_continues", "[identity]") {
    const int overlap = GENERATE(0, 1);
    for (uint64_t seed = 1; seed <= n_seeds(8); ++seed) {
        INFO("seed " << seed << " overlap " << overlap);
        World world({.seed = seed, .n_hosts = 2, .overlap = overlap});
        add_clone(world, "host1");
        std::string why;
        for (int i = 0; i < 100 && why.empty(); ++i) {
            why = error_of([&] { world.run(Millis(10)); });
        }
        CHECK(has(why, "another process"));
        // the one that is a member continues
        const bool is_first = error_of([&] { world.hosts[1]->turn(world.now()); }).empty();
        world.hosts.erase(world.hosts.begin() + (is_first ? 2 : 1));
        world.run(Millis(4'000));
        CHECK(world.hosts[1]->n_listed > 20);
        CHECK(world.ledger.n_faults == 0);
    }
}

TEST_CASE("a_name_is_free_when_its_host_has_been_silent", "[identity]") {
    const int n_hosts = GENERATE(1, 3);  // alone: no round closes without it
    World     world(
            {.n_hosts    = n_hosts,
             .membership = {.min_hosts = 1, .min_deadline = Millis(200), .gone_after = Millis(8'000)}}
        );
    world.run(Millis(3'000));
    world.hosts[0]->is_on = false;
    world.hosts[0]->stop();
    const uint64_t before = world.ledger.states.rbegin()->first;
    add_clone(world, "host0");  // as after a power cut
    world.run(Millis(15'000));
    CHECK(world.hosts.back()->n_listed > 20);
    CHECK(world.hosts.back()->index() > before + 20);
    // the first one returns from its checkpoint
    world.hosts[0]->is_on = true;
    CHECK(has(error_of([&] { world.run(Millis(3'000)); }), "another process takes part as 'host0'")
    );
}

TEST_CASE("a_killed_host_returns_at_once", "[identity]") {
    World world({.n_hosts = 3});
    world.run(Millis(3'000));
    for (int i = 0; i < 5; ++i) {
        world.hosts[1]->stop();
        const uint64_t before = world.hosts[1]->n_listed;
        world.run(Millis(1'500));  // a round takes 110 ms
        CHECK(world.hosts[1]->n_listed > before);
    }
}

TEST_CASE("processes_that_exclude_each_other_are_equal_and_a_copy_is_not", "[identity]") {
    const Scratch scratch;
    std::filesystem::create_directories(scratch / "config");
    Key32      first;
    const auto lock = [&](const char * folder, uint64_t run, const char * name) {
        return NameLock(scratch / folder, run, name).process();
    };
    {
        const NameLock held(scratch / "config", 1, "anna");
        first = held.process();
        CHECK(has(error_of([&] { lock("config", 1, "anna"); }), "takes part in the run as 'anna'"));
        CHECK(lock("config", 1, "ben") != first);
        CHECK(lock("config", 2, "anna") != first);
    }
    CHECK(lock("config", 1, "anna") == first);
    std::filesystem::copy(scratch / "config", scratch / "copy");
    CHECK(lock("copy", 1, "anna") != first);
}

TEST_CASE("a_removed_host_is_told_and_the_others_continue", "[identity]") {
    const int  n_hosts = GENERATE(1, 3);
    const bool elected = GENERATE(false, true);
    World      world(
             {.n_hosts    = n_hosts,
              .elected    = elected,
              .membership = {.min_hosts = 1, .min_deadline = Millis(200)}}
         );
    world.run(Millis(4'000));
    const std::string name = format("host%d", n_hosts - 1);
    const RunPaths    paths(world.keys().run);
    const PresenceKey removed{PresenceKey::Kind::removed, name, 0};
    world.store().put(paths.presence(removed), make_record(world.keys(), head_of(removed), {}));
    const auto rounds_pass = [&] { world.run(Millis(4'000)); };
    CHECK(has(error_of(rounds_pass), "was removed from the run"));
    world.hosts.back()->stop();
    CHECK(has(error_of(rounds_pass), "was removed from the run"));  // at every start
    world.hosts.pop_back();
    const uint64_t before = n_hosts > 1 ? world.hosts[0]->index() : 0;
    world.run(Millis(4'000));
    for (const auto & host : world.hosts) {
        CHECK(host->index() > before + 5);
    }
}

TEST_CASE("a_hub_cannot_make_settings_or_a_model", "[identity]") {
    const RunKeys  keys = keys_from_secret(Key32{1});
    const RunKeys  hub  = keys_from_hub_form(hub_form(keys));
    const RunPaths paths(keys.run);
    const auto     store = make_memory_store();
    const Bytes    gguf{1, 2, 3};
    store->put(paths.model(), make_record(hub, {Kind::model, 0, "anna", 0}, gguf));
    CHECK_FALSE(fetch_model(*store, keys, Millis(0)));
    store->put(paths.settings(), make_record(hub, {Kind::settings, 0, "anna", 0}, Bytes{0, 0}));
    CHECK_THROWS_AS(read_settings(*store, keys), StoreError);
    // it reads those of hosts
    const auto honest = make_memory_store();
    agree_settings(*honest, keys, "anna", {{"steps", "7"}}, {});
    CHECK(read_settings(*honest, hub)->at("steps") == "7");
    CHECK(read_settings(*honest, keys)->at("steps") == "7");
    offer_model(*honest, keys, "anna", gguf);
    CHECK(fetch_model(*honest, keys, Millis(0)) == gguf);
}

TEST_CASE("a_machine_keeps_its_key_for_itself", "[identity]") {
    const Scratch     scratch;
    const std::string path = scratch / "config/ggml-train/host-key";
    const Key32       seed = load_host_key(path);
    CHECK(load_host_key(path) == seed);
    using std::filesystem::perms;
    CHECK(std::filesystem::status(path).permissions() == (perms::owner_read | perms::owner_write));
    CHECK(load_host_key(scratch / "other/host-key") != seed);
    std::ofstream(path) << "nonsense\n";
    CHECK(has(error_of([&] { (void) load_host_key(path); }), "no key of a machine"));
}
