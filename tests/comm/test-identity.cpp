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
    const RunKeys   hub = keys_from_hub_form(hub_form(keys));
    const MessageId id{5, "anna", 2};
    const Bytes     body{1, 2, 3};
    Bytes           value = make_message(keys, id, {.n_body_bytes = 3}, body);
    CHECK(is_signed_message(public_key(keys.host_seed), hub.run, id, value));
    CHECK_FALSE(is_signed_message(public_key(other.host_seed), hub.run, id, value));
    CHECK_FALSE(is_signed_message(public_key(keys.host_seed), hub.run, {6, "anna", 2}, value));
    value = make_message(other, id, {.n_body_bytes = 3}, body);
    CHECK(open_message(keys, id, value));  // it has the run's secret
    CHECK_FALSE(is_signed_message(public_key(keys.host_seed), hub.run, id, value));
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
