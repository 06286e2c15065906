// What members may write at a hub: their own values, signed with their own keys. Commits are the hub's.
#include "comm/hub/hub-sequencer.h"
#include "comm/wire/commit.h"
#include "tests/comm/hub-fixture.h"

#include <thread>

using namespace gt;

namespace {

RunKeys keys_of_machine(uint8_t seed) {
    RunKeys keys   = keys_of('A');
    keys.host_seed = Key32{seed};
    return keys;
}

// A hub with its sequencer, and members with keys of their own.
struct MeetingPlace {
    Scratch                      folder;
    RunKeys                      keys = keys_of_machine(100);
    RunPaths                     paths{keys.run};
    RunKeys                      anna = keys_of_machine(1), ben = keys_of_machine(2);
    HubSequencer                 sequencer{keys, {.membership = {.min_hosts = 2}}};
    Hub                          hub{with_hooks()};
    Store &                      inside = hub.store();
    const std::unique_ptr<Store> to_hub = make_http_store(client_options(hub, anna));

    HubOptions with_hooks() {
        HubOptions options = hub_options(folder);
        options.keys       = keys;
        options.hooks      = &sequencer;
        return options;
    }
    bool puts(const std::string & key, const Bytes & value) const {
        try {
            return to_hub->put(key, value);
        } catch (const StoreError &) {
            return false;
        }
    }
    Bytes message(const RunKeys & by, const MessageId & id, size_t n = 3) const {
        return make_message(by, id, {.n_body_bytes = uint32_t(n)}, Bytes(n));
    }
    // Both announce themselves, and the hub admits them.
    ChainEntry begin() {
        for (const auto & [name, by] : {std::pair{"anna", &anna}, {"ben", &ben}}) {
            const PresenceKey hello{PresenceKey::Kind::hello, name, 1};
            to_hub->put(paths.presence(hello), make_record(*by, head_of(hello), {}));
        }
        auto first = CommitLog(*to_hub, keys).read(0, 5s);
        REQUIRE(first);
        return *first;
    }
};

}  // namespace

TEST_CASE("only_the_hub_writes_commits", "[hub][rights]") {
    MeetingPlace     run;
    const ChainEntry first  = run.begin();
    const Bytes      value  = *run.inside.get(run.paths.commit(0));
    Commit           forged = first.commit;
    forged.index            = 1;
    forged.previous         = first.digest;
    CHECK_FALSE(run.puts(run.paths.commit(1), encode_commit(run.anna, forged)));
    CHECK_FALSE(run.puts(run.paths.commit(1), Bytes(40'000)));
    CHECK_FALSE(run.puts(run.paths.commit(1), value));
    const RecordHead floor{Kind::floor, 1, "sequencer", 0};
    CHECK_FALSE(run.puts(run.paths.floor(1), make_record(run.anna, floor, {})));
    CHECK(run.inside.list(run.paths.commits()).size() == 1);
    CHECK(run.inside.list(run.paths.floors()).empty());
    // a host puts back what the folder has lost
    run.inside.remove(run.paths.commit(0));
    CHECK(run.puts(run.paths.commit(0), value));
}

TEST_CASE("a_member_writes_in_its_own_name_only", "[hub][rights]") {
    MeetingPlace run;
    run.begin();
    const size_t    n_bytes = GENERATE(3, 100'000);  // whole, in ranges
    const MessageId bens{1, "ben", 1};
    const Bytes     value = run.message(run.ben, bens, n_bytes);
    CHECK_FALSE(run.puts(run.paths.message(bens), run.message(run.anna, bens, n_bytes)));
    CHECK_FALSE(run.puts(run.paths.message(bens), run.message(run.ben, {1, "anna", 1}, n_bytes)));
    CHECK(run.puts(run.paths.message(bens), value));  // a copy: the store had lost it
    const SealContext place{
        .run = run.keys.run, .kind = "shard", .round = 1, .host = "ben", .incarnation = 1};
    CHECK_FALSE(run.puts(
        run.paths.shard(bens, 0), make_sealed(run.anna, Kind::shard, place, Bytes(n_bytes))
    ));
    CHECK(
        run.puts(run.paths.shard(bens, 0), make_sealed(run.ben, Kind::shard, place, Bytes(n_bytes)))
    );
    for (const auto kind : {PresenceKey::Kind::hello, PresenceKey::Kind::leave}) {
        const PresenceKey key{kind, "ben", 2};
        CHECK_FALSE(run.puts(run.paths.presence(key), make_record(run.anna, head_of(key), {})));
    }
    // who runs the hub removes hosts
    const PresenceKey removed{PresenceKey::Kind::removed, "ben", 0};
    CHECK_FALSE(run.puts(run.paths.presence(removed), make_record(run.anna, head_of(removed), {})));
    CHECK(run.puts(run.paths.presence(removed), make_record(run.keys, head_of(removed), {})));
}

TEST_CASE("who_has_a_name_keeps_it_after_a_restart_of_the_hub", "[hub][rights]") {
    MeetingPlace run;
    run.begin();
    HubSequencer again(run.keys, {});
    again.start(run.inside);
    CHECK(again.key_of("ben") == public_key(run.ben.host_seed));
    CHECK_FALSE(again.key_of("carl"));
}

TEST_CASE("nobody_removes_values_of_a_hub_over_the_network", "[hub][rights]") {
    MeetingPlace run;
    run.begin();
    const std::string key = run.paths.hello("ben", 1);
    HttpClient        raw(raw_options(run.hub, run.anna));
    CHECK(raw.perform({.method = "DELETE", .path = "/v/" + key}).status == 404);
    CHECK(run.inside.get(key));
}

TEST_CASE("invented_names_do_not_lock_hosts_out", "[hub][rights]") {
    const Scratch folder;
    const RunKeys keys = keys_of('A');
    Hub           hub(hub_options(folder));
    HttpOptions   options = raw_options(hub, keys);
    options.headers.clear();
    HttpClient client(options);
    const auto status = [&](const std::string & name) {
        return client.perform({.path = "/v/a", .headers = {"X-Host: " + name}}).status;
    };
    for (size_t i = 0; i < kMaxHosts; ++i) {
        CHECK(status(format("invented%zu", i)) == 404);
    }
    CHECK(status("newcomer") == 404);
}
