// The hub's folder: one hub at a time, values that never change, new values found without a search.
#include "comm/hub/hub-disk.h"
#include "comm/hub/hub-uploads.h"
#include "comm/meet.h"
#include "comm/rounds/uploader.h"
#include "comm/sequencer/sequencer.h"
#include "comm/wire/records.h"
#include "tests/comm/hub-fixture.h"
#include "tests/comm/hub-process.h"

#include <ctime>

using namespace gt;

TEST_CASE("a_second_hub_on_the_same_folder_is_refused_and_hurts_nothing", "[hub]") {
    const Scratch folder;
    const RunKeys keys    = keys_of('A');
    HubOptions    options = hub_options(folder);
    Hub           hub(options);
    HttpClient    client(raw_options(hub, keys));
    const Bytes   value = some_bytes(50'000, 1);
    const auto    put   = [&](size_t part) {
        const size_t begin = part * 30'000;
        return client
            .perform(
                     {.method = "PUT",
                      .path = format("/v/large?upload=u&part=%zu&part_bytes=30000&size=50000", part),
                      .body = std::span(value).subspan(begin, std::min<size_t>(30'000, 50'000 - begin)),
                      .has_body = true}
                 )
            .status;
    };
    CHECK(put(0) == 202);
    CHECK_THAT(error_of([&] { Hub second(options); }), ContainsSubstring("another hub"));
    options.address = "127.0.0.1:" + std::to_string(hub.port());
    CHECK_THAT(error_of([&] { Hub second(options); }), ContainsSubstring("another hub"));
    CHECK(put(1) == 201);
    CHECK(holds(hub.store(), "large", value));
}

TEST_CASE("an_upload_whose_file_is_gone_starts_over", "[hub]") {
    const Scratch folder;
    HubDisk       disk(folder / "hub", {});
    HubUploads    uploads(disk);
    const Bytes   value = some_bytes(40'000, 1);
    const auto    put   = [&](uint64_t i) {
        return uploads.write(
                 "v", {"u", i, 20'000, 40'000}, std::span(value).subspan(i * 20'000, 20'000),
                 [](std::span<const uint8_t>) {}
             );
    };
    CHECK(put(0) == HubDisk::Outcome::incomplete);
    for (const auto & aside : std::filesystem::directory_iterator(folder / "hub/=tmp")) {
        std::filesystem::remove(aside.path());
    }
    CHECK_THROWS_AS(put(1), StoreError);
    CHECK(put(0) == HubDisk::Outcome::incomplete);
    CHECK(put(1) == HubDisk::Outcome::created);
    CHECK(holds(disk, "v", value));
}

TEST_CASE("a_key_at_the_hub_keeps_its_first_value", "[hub]") {
    const Scratch folder;
    const RunKeys keys = keys_of('A');
    Hub           hub(hub_options(folder));
    const auto    store = make_http_store(client_options(hub, keys));
    for (const size_t n : {size_t(100), size_t(200'000)}) {
        const std::string key  = "k" + std::to_string(n);
        const Bytes       mine = some_bytes(n, 1), other = some_bytes(n, 2);
        CHECK(store->put(key, mine));
        CHECK(store->put(key, mine));
        CHECK_FALSE(store->put(key, other));
        CHECK_FALSE(hub.store().put(key, other));
        CHECK(holds(*store, key, mine));
        HttpClient raw(raw_options(hub, keys));
        CHECK(
            raw.perform({.method = "PUT", .path = "/v/" + key, .body = other, .has_body = true})
                .status == 412
        );
    }
}

TEST_CASE("a_damaged_value_at_the_hub_is_replaced_by_a_good_one", "[hub]") {
    const Scratch folder;
    const RunKeys keys = keys_of('A');
    const Bytes   good = make_record(keys, {Kind::presence, 0, "anna", 1}, some_bytes(100, 1));
    const Bytes   more = make_record(keys, {Kind::presence, 0, "anna", 1}, some_bytes(100, 2));
    {
        HubDisk disk(folder / "hub", {});
        CHECK(disk.put("a", good, false));
    }
    write_text(folder / "hub/a", std::string(good.size(), '\0'));  // as after a power failure
    HubDisk disk(folder / "hub", {});
    CHECK_FALSE(disk.put("a", some_bytes(100, 3), false));
    CHECK(disk.put("a", good, false));
    CHECK(holds(disk, "a", good));
    CHECK_FALSE(disk.put("a", more, false));
}

TEST_CASE("followers_find_new_values_without_a_search_of_all_keys", "[hub]") {
    const Scratch folder;
    HubDisk       disk(folder / "hub", {});
    const auto    message = [](int i) { return format("r/message/%06d", i); };
    for (int i = 0; i < 4000; i++) {
        write_text(folder / ("hub/" + message(i)), "x");
    }
    HubDisk        full(folder / "hub", {});
    const uint64_t before = full.newest_version();
    for (int i = 4000; i < 4100; i++) {
        full.put(message(i), Bytes{1}, false);
        full.put(format("r/piece/%06d", i), Bytes{1}, false);
    }
    const std::clock_t begin   = std::clock();  // other programs may use this machine
    int                n_wrong = 0;
    for (int follower = 0; follower < 256; follower++) {
        uint64_t version = before;
        for (int i = 4000; i < 4100; i++) {
            const auto found = full.follow({"r/message/", "r/commit/"}, version, 0ms);
            n_wrong += found && found->first == message(i) ? 0 : 1;
            version = found ? found->second.version : version;
        }
        n_wrong += full.follow({"r/message/"}, version, 0ms) ? 1 : 0;
    }
    const double ms = 1e3 * double(std::clock() - begin) / CLOCKS_PER_SEC;
    WARN("25,600 new values among 4,200 keys: " << ms << " ms");
    CHECK(n_wrong == 0);
    CHECK(ms < 250);  // a search of all keys takes 5 s
}

TEST_CASE("others_can_t_read_the_hub_s_folder", "[hub]") {
    const Scratch folder;
    const RunKeys keys = keys_of('A');
    Hub           hub(hub_options(folder));
    make_http_store(client_options(hub, keys))->put("large", some_bytes(200'000, 1));
    hub.store().put("small", Bytes{1});
    using std::filesystem::perms;
    const perms others = perms::group_all | perms::others_all;
    const auto  of     = [&](const char * name) {
        return std::filesystem::status(folder / name).permissions() & others;
    };
    CHECK(of("hub") == perms::none);
    CHECK(of("hub/=hub") == perms::none);
    CHECK(of("hub/large") == perms::none);
    CHECK(of("hub/small") == perms::none);
}

TEST_CASE("a_host_is_a_client_of_its_own_hub_if_that_runs_already", "[hub]") {
    const Scratch folder;
    const int     port = free_port();
    const Hosts   hosts =
        parse_hosts("key " + to_base64(Key32{7}) + format("\nanna 127.0.0.1:%d\n", port), "hosts");
    HubOptions options;
    options.address = format("127.0.0.1:%d", port);
    options.path    = folder / "hub";
    options.keys    = hosts.keys;
    options.quiet   = true;
    MeetOptions own;
    own.hub_path = options.path;
    {
        Hub hub(options);
        for (const char * path : {"hub", "other"}) {  // the same default folder, or another one
            own.hub_path       = folder / path;
            const auto meeting = meet(hosts, "anna", own);
            meeting->store().put(path, Bytes{1});
            CHECK(holds(hub.store(), path, Bytes{1}));
        }
    }
    options.keys = keys_of('B');  // the port is another run's
    Hub another(options);
    CHECK_THAT(error_of([&] { meet(hosts, "anna", own); }), ContainsSubstring("in use"));
}

namespace {

// anna and ben as the sequencer of a hub sees them; no checkpoint is ever complete.
struct Run {
    RunKeys   keys = keys_of('A');
    RunPaths  paths{keys.run};
    HubDisk & disk;
    Sequencer sequencer{disk, keys, {.membership = {.min_hosts = 2}}};

    explicit Run(HubDisk & d) : disk(d) {
        for (const char * name : {"anna", "ben"}) {
            disk.put(
                paths.hello(name, 1), make_record(keys, {Kind::presence, 0, name, 1}, {}), true
            );
        }
        REQUIRE(sequencer.poll(std::chrono::steady_clock::now()));
    }

    // A round of messages of this size; false: they do not find space.
    bool round(uint64_t index, size_t bytes) {
        for (const char * name : {"anna", "ben"}) {
            MessageHead head;
            head.step         = index;
            head.weight       = 1;
            head.n_body_bytes = static_cast<uint32_t>(bytes);
            const MessageId id{index, name, 1};
            const Bytes     message = make_message(keys, id, head, Bytes(bytes));
            bool            is_put  = false;
            for (int attempt = 0; attempt < 100 && !is_put; attempt++) {
                try {
                    is_put = disk.put(paths.message(id), message, false);
                } catch (const HubFull &) {
                    sequencer.poll(std::chrono::steady_clock::now());  // makes room
                }
            }
            if (!is_put) {
                return false;
            }
        }
        return sequencer.poll(std::chrono::steady_clock::now());
    }
};

}  // namespace

TEST_CASE("a_full_hub_frees_itself_and_the_run_continues", "[hub]") {
    const Scratch folder;
    HubDisk       disk(folder / "hub", {.max_total_bytes = 50 * 20'000});  // 25 rounds of 100
    Run           run(disk);
    for (uint64_t i = 1; i <= 100; i++) {
        INFO("round " << i);
        REQUIRE(run.round(i, 20'000));
    }
    CHECK(disk.total_bytes() <= 50 * 20'000);
    CHECK(disk.get(run.paths.commit(1), 0ms).has_value());  // commits stay: they are the chain
    CHECK(disk.get(run.paths.message({95, "anna", 1}), 0ms).has_value());
}

TEST_CASE("a_full_hub_still_takes_records", "[hub]") {
    const Scratch  folder;
    const RunPaths paths(1);
    HubDisk        disk(folder / "hub", {.max_total_bytes = 1'000'000});
    int            n_messages = 0;
    CHECK_THAT(
        error_of([&] {
            for (;; n_messages++) {
                disk.put(paths.message({1, format("host%d", n_messages), 1}), Bytes(10'000), false);
            }
        }),
        ContainsSubstring("full")
    );
    CHECK(n_messages > 90);
    CHECK(disk.is_nearly_full());
    CHECK(disk.put(paths.message(1, "host0", 1), Bytes(10'000), false));  // again
    CHECK(disk.put(paths.commit(1), Bytes(10'000), true));
    CHECK(disk.put(paths.floor(1), Bytes(100), true));
}

TEST_CASE("an_upload_that_fails_tells_why", "[hub]") {
    std::atomic<bool> is_full{true};
    Uploader          uploader;
    uploader.push({[&] {
        if (is_full) {
            throw StoreError("the hub's 1 MB are full");
        }
    }});
    CHECK_FALSE(uploader.drain(300ms));
    CHECK(uploader.trouble() == "the hub's 1 MB are full");
    is_full = false;
    CHECK(uploader.drain(10s));
    CHECK(uploader.trouble().empty());
}

TEST_CASE("the_hub_names_folders_of_other_runs", "[hub]") {
    const Scratch folder;
    write_text(folder / "hub/r00000000000000ff/message/000000000001/anna/000000000001", "x");
    Hub hub(hub_options(folder));
    hub.store().put(RunPaths(keys_of('A').run).settings(), Bytes{1});
    CHECK_THAT(
        read_text(folder / "hub/=hub/hub.log"),
        ContainsSubstring("r00000000000000ff/ has 1 bytes of another run")
    );
}
