// The real hub program: SIGKILL loses nothing, and many rounds do not make it grow.
#include "comm/rounds/peers-store.h"
#include "comm/run/host-key.h"
#include "tests/comm/hub-process.h"
#include "tests/comm/store-suite.h"
#include "tests/fake/dense-floats.h"

#include <mutex>
#include <set>

using namespace gt;
using namespace std::chrono_literals;

TEST_CASE("a_killed_hub_loses_nothing_that_it_acknowledged", "[hub]") {
    const Scratch folder;
    HubProcess    hub(GT_HUB, folder);
    hub.start();

    std::mutex                                    mutex;
    std::vector<std::pair<std::string, uint64_t>> acknowledged;  // key, seed
    std::atomic<bool>                             stop{false};
    std::vector<std::thread>                      writers;
    const auto size_of = [](uint64_t seed) { return seed % 5 == 0 ? 700'000u : 900u; };
    for (int w = 0; w < 3; w++) {
        writers.emplace_back([&, w] {
            const auto store = make_http_store(hub.client("host-" + std::to_string(w)));
            for (uint64_t i = 0; !stop; i++) {
                const uint64_t    seed = 1000 * uint64_t(w) + i;
                const std::string key  = "w" + std::to_string(w) + "/" + std::to_string(i);
                store->put(key, some_bytes(size_of(seed), seed));
                std::lock_guard<std::mutex> lock(mutex);
                acknowledged.emplace_back(key, seed);
            }
        });
    }
    const auto n_acknowledged = [&] {
        std::lock_guard<std::mutex> lock(mutex);
        return acknowledged.size();
    };
    for (int n = 0; n < 6; n++) {  // each time in the middle of some writes
        const auto   give_up = std::chrono::steady_clock::now() + 60s;
        const size_t enough  = n_acknowledged() + 6;
        while (n_acknowledged() < enough && std::chrono::steady_clock::now() < give_up) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1 + 7 * n));
        }
        hub.kill(SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(30 * n));
        hub.start();
    }
    std::this_thread::sleep_for(300ms);
    stop = true;
    for (std::thread & writer : writers) {
        writer.join();
    }
    hub.kill(SIGKILL);
    hub.start();
    const auto store  = make_http_store(hub.client("reader"));
    int        n_lost = 0;
    for (const auto & [key, seed] : acknowledged) {
        n_lost += holds(*store, key, some_bytes(size_of(seed), seed)) ? 0 : 1;
    }
    INFO(acknowledged.size() << " values over 7 kills");
    CHECK(acknowledged.size() > 30);
    CHECK(n_lost == 0);
    CHECK(std::filesystem::is_empty(hub.path() + "/=tmp"));
    hub.kill(SIGTERM);
    CHECK_THAT(hub.output(), ContainsSubstring("listening on port"));
}

// A power cut: the file of a message has its name, but not its bytes.
TEST_CASE("a_message_that_the_hub_has_lost_is_put_again_after_its_restart", "[hub]") {
    const Scratch folder;
    HubProcess    hub(GT_HUB, folder);
    hub.start();
    const RunKeys     keys = read_hosts(folder / "hosts.txt").keys;
    const RunPaths    paths(keys.run);
    const MessageId   id{5, "anna", 1};
    const std::string key     = paths.message(id);
    const auto        size    = GENERATE(300u, 900'000u);
    const Bytes       message = make_message(keys, id, {.n_body_bytes = size}, some_bytes(size, 1));
    const auto        store   = make_http_store(hub.client("anna"));
    CHECK_FALSE(store->get(paths.commit(5)));
    store->put(key, message);
    hub.kill(SIGKILL);
    REQUIRE(std::filesystem::exists(hub.path() + "/" + key));
    std::filesystem::resize_file(hub.path() + "/" + key, 0);
    hub.start();
    CHECK_FALSE(store->get(paths.commit(5), 1s));  // as a host that waits
    CHECK(holds(*make_http_store(hub.client("ben")), key, message));
}

// By a hub that has gone back to an older copy of its folder: it must wait for the commits that we put back.
TEST_CASE("a_message_of_a_closed_round_is_not_put_again_after_a_restart", "[hub]") {
    const Scratch folder;
    HubProcess    hub(GT_HUB, folder);
    hub.start();
    const RunKeys  keys = read_hosts(folder / "hosts.txt").keys;
    const RunPaths paths(keys.run);
    const auto     store = make_http_store(hub.client("anna"));
    const auto     put   = [&](uint64_t index) {
        const MessageId id{index, "anna", 1};
        store->put(paths.message(id), make_message(keys, id, {}, {}));
    };
    put(5);
    put(6);
    RunKeys of_hub   = keys;  // on this machine
    of_hub.host_seed = load_host_key(default_host_key_path());
    Commit closed;
    closed.index  = 5;
    closed.writer = "hub";
    store->put(paths.commit(5), encode_commit(of_hub, closed));
    CHECK(store->get(paths.commit(5)));
    hub.kill(SIGKILL);
    std::filesystem::remove_all(hub.path() + "/" + paths.root);
    hub.start();
    CHECK_FALSE(store->get(paths.commit(6), 1s));  // as a host that waits
    CHECK(store->list(paths.messages()) == std::vector{paths.message(6, "anna", 1)});
}

TEST_CASE("2000_small_rounds_take_5_mb_of_the_hubs_memory", "[hub][memory]") {
    constexpr int kRounds = 2000, kWarm = 200, kHosts = 4;
    const Scratch folder;
    HubProcess    hub(GT_HUB, folder);
    hub.start();
    std::vector<std::unique_ptr<Store>> hosts;
    for (int h = 0; h < kHosts; h++) {
        hosts.push_back(make_http_store(hub.client("host-" + std::to_string(h))));
    }
    std::atomic<int>         n_missing{0};
    std::atomic<double>      warm{0};
    std::vector<std::thread> threads;
    for (int h = 0; h < kHosts; h++) {
        threads.emplace_back([&, h] {
            Store & store = *hosts[size_t(h)];
            for (int r = 0; r < kRounds; r++) {
                const auto message = [&](int round, int host) {
                    return format("m/%06d/%d", round, host);
                };
                store.put(message(r, h), some_bytes(1500, uint64_t(r)));
                if (h == 0) {
                    for (int other = 0; other < kHosts; other++) {
                        n_missing += store.get(message(r, other), 20s) ? 0 : 1;
                    }
                    store.put(format("c/%06d", r), some_bytes(300, uint64_t(r)));
                    if (r == kWarm) {
                        warm = hub.rss_mb();
                    }
                } else {
                    n_missing += store.get(format("c/%06d", r), 20s) ? 0 : 1;
                }
            }
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    const double end = hub.rss_mb();
    WARN("hub: " << warm << " MB after " << kWarm << " rounds, " << end << " MB after " << kRounds);
    CHECK(n_missing == 0);
    CHECK(end - warm < 5.0);
}

TEST_CASE("eight_hosts_meet_at_a_hub_with_256_files", "[hub]") {
    constexpr int kRounds = 12, kHosts = 8;
    const Scratch folder;
    HubProcess    hub(GT_HUB, folder);
    hub.start({}, 256);
    const RunPaths           paths(read_hosts(folder / "hosts.txt").keys.run);
    std::atomic<int>         n_missing{0}, n_retries{0};
    std::vector<std::thread> hosts;
    for (int h = 0; h < kHosts; h++) {
        hosts.emplace_back([&, h] {
            HttpStoreOptions options = hub.client("host-" + std::to_string(h));
            options.n_connections    = connections_of(kHosts);
            options.feed             = true;
            options.counters         = std::make_shared<LinkCounters>();
            const auto store         = make_http_store(options);
            for (int r = 0; r < kRounds; r++) {
                const auto round = uint64_t(r);
                const auto name  = [](int host) { return "host-" + std::to_string(host); };
                store->put(paths.message({round, name(h), 1}), some_bytes(300'000, round));
                for (int other = 0; other < kHosts; other++) {
                    n_missing += store->get(paths.message({round, name(other), 1}), 30s) ? 0 : 1;
                }
            }
            n_retries += int(options.counters->n_retries);
        });
    }
    for (std::thread & host : hosts) {
        host.join();
    }
    CHECK(n_missing == 0);
    WARN(n_retries << " retries of " << kHosts << " hosts in " << kRounds << " rounds");
    CHECK_THAT(read_text(hub.path() + "/=hub/hub.log"), !ContainsSubstring("Too many open files"));
}

static void remove_newest_commits(const std::string & store) {
    std::set<std::filesystem::path> commits;
    for (const auto & entry : std::filesystem::recursive_directory_iterator(store)) {
        if (entry.path().parent_path().filename() == "commit") {
            commits.insert(entry.path());
        }
    }
    REQUIRE(commits.size() > 3);
    for (int i = 0; i < 3; ++i) {
        std::filesystem::remove(*commits.rbegin());
        commits.erase(std::prev(commits.end()));
    }
}

// Two hosts train over a hub whose folder goes away, with `is_dense` in the middle of exchanges, or goes back to an
// older copy that has messages of later rounds.
TEST_CASE("running_hosts_lose_no_round_with_the_hub_s_folder", "[hub]") {
    constexpr uint64_t kSteps   = 60;
    const int          fault    = GENERATE(0, 1, 2);
    const bool         is_dense = fault == 1, is_older = fault == 2;
    const Scratch      folder;
    HubProcess         hub(GT_HUB, folder);
    hub.start({"--min-hosts", "2"});
    const RunKeys         keys = read_hosts(folder / "hosts.txt").keys;
    std::atomic<uint64_t> reached{0}, n_faults{0}, n_left_out{0};
    std::mutex            mutex;
    std::map<uint64_t, std::map<std::string, uint64_t>> states;  // by step, of each host
    std::vector<std::thread>                            hosts;
    for (const char * name : {"anna", "ben"}) {
        hosts.emplace_back([&, name] {
            HttpStoreOptions http   = hub.client(name);
            http.feed               = true;
            const auto        store = make_http_store(http);
            StorePeersOptions options;
            options.host       = name;
            options.lost_after = Millis(2'000);
            options.poll       = Millis(200);
            options.drain      = Millis(2'000);
            options.shards     = is_dense ? std::optional(make_float_codec(4)) : std::nullopt;
            StorePeers peers(*store, keys, options);
            uint64_t   state = 0, step = peers.join({}, true).step;
            const auto apply = [&](const Collected & collected) {
                n_faults += collected.fault == Fault::none ? 0 : 1;
                n_left_out += collected.round.has_mine ? 0 : 1;
                for (const Message & message : collected.round.messages) {
                    state = digest64(message.bytes, state ^ digest64(message.host));
                }
                step = std::max(step, collected.round.step + 1);
                peers.applied({.step = collected.round.step, .state_digest = state});
                const std::lock_guard lock(mutex);
                states[step][name] = state;
                reached            = std::max<uint64_t>(reached, step);
            };
            while (step < kSteps && n_faults == 0) {
                std::this_thread::sleep_for(20ms);
                const auto missed = peers.missed(true);
                if (missed) {
                    apply(*missed);
                    continue;
                }
                peers.publish(step, 1, some_bytes(64, step + digest64(name)));
                apply(peers.collect(step));
            }
        });
    }
    for (int i = 0; i < 2; ++i) {
        const uint64_t from = reached;
        for (int n = 0; n < 600 && reached < from + 10; ++n) {
            std::this_thread::sleep_for(50ms);
        }
        hub.kill(SIGKILL);
        if (is_older) {
            remove_newest_commits(hub.path());
        } else {
            std::filesystem::remove_all(hub.path());
        }
        hub.start({"--min-hosts", "2"});
    }
    for (std::thread & host : hosts) {
        host.join();
    }
    CHECK(n_faults == 0);
    CHECK(reached == kSteps);
    for (const auto & [step, of_hosts] : states) {
        INFO("step " << step);
        CHECK((of_hosts.size() < 2 || of_hosts.at("anna") == of_hosts.at("ben")));
    }
    CHECK(n_left_out <= 2);  // one for each loss, if a message was late
}
