// Rounds with real threads and time: StorePeers over memory, a folder and a hub; a bad store; dense
// exchanges; late hosts. The state of a toy host is a digest of everything it has applied.
#include "comm/hub/hub-sequencer.h"
#include "comm/meet.h"
#include "comm/sequencer/sequencer-thread.h"
#include "comm/store/store-cache.h"
#include "comm/wire/wire.h"
#include "tests/catch.h"
#include "tests/fake/dense-floats.h"
#include "tests/fake/flaky-store.h"
#include "tests/fake/store-memory.h"
#include "tests/scratch.h"

#include <atomic>
#include <cmath>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

using namespace gt;

namespace {

RunKeys test_keys(uint8_t n) {
    Key32 secret{};
    secret[0] = n;
    return keys_from_secret(secret);
}

MembershipOptions quick(size_t min_hosts) {
    MembershipOptions options;
    options.min_hosts        = min_hosts;
    options.min_deadline     = Millis(300);
    options.first_deadline   = Millis(5000);
    options.gone_after       = Millis(3000);
    options.checkpoint_every = 8;
    return options;
}

// What a trainer does, with digests for weights.
struct Toy {
    std::map<uint64_t, uint64_t> states;  // after each step
    uint64_t                     state = 0, n_late = 0, n_loaded = 0, n_faults = 0;
    std::vector<Bytes>           whole;  // dense: the results

    void apply(Peers & peers, const Collected & collected, uint64_t & step) {
        const Round & round = collected.round;
        if (collected.fault != Fault::none) {
            ++n_faults;
            join(peers, {}, false, step);
            return;
        }
        for (const Message & message : round.messages) {
            state = digest64(message.bytes, state ^ digest64(message.host) ^ message.weight);
            whole.push_back(message.bytes);
        }
        n_late += round.has_mine ? 0 : 1;
        if (!round.messages.empty()) {
            states[round.step] = state;
        }
        step = std::max(step, round.step + 1);
        peers.applied(
            {.step         = round.step,
             .state_digest = state,
             .loss         = 1.0,
             .slices       = slices(collected.slices, step)}
        );
    }
    std::vector<Applied::Slice> slices(const SliceOrder & order, uint64_t step) const {
        std::vector<Applied::Slice> slices;
        for (const int i : order.ours) {
            slices.push_back({i, bytes(step)});
        }
        return slices;
    }
    Bytes bytes(uint64_t step) const {
        WireWriter out;
        out.u64(state);
        out.u64(step);
        return out.take();
    }
    void join(Peers & peers, std::span<const uint8_t> mark, bool fresh, uint64_t & step) {
        const Joined from = peers.join(mark, fresh);
        step              = from.step;
        for (int i = 0; i < from.n_slices; ++i) {
            const auto slice = peers.slice(i);
            REQUIRE(slice);
            WireReader in(*slice);
            state = in.u64();
            in.u64();
            REQUIRE(in.at_end());
        }
        n_loaded += from.n_slices > 0 ? 1 : 0;
        peers.applied({.step = from.step - 1, .slices = slices(from.write, step)});
    }

    void
    run(Peers &             peers,
        const std::string & host,
        uint64_t            n_steps,
        int                 overlap,
        Millis              compute,
        size_t              n_bytes = 100) {
        uint64_t             step = 0;
        std::deque<uint64_t> in_flight;
        const auto           finish = [&](const Collected & collected) {
            apply(peers, collected, step);
            if (!in_flight.empty()) {
                in_flight.pop_front();
            }
        };
        join(peers, {}, true, step);
        while (step < n_steps) {
            std::this_thread::sleep_for(compute);
            while (step < n_steps) {
                const auto missed = peers.missed(true);
                if (!missed) {
                    break;
                }
                finish(*missed);
            }
            if (step >= n_steps) {
                break;
            }
            Bytes message(n_bytes);
            for (size_t i = 0; i + 4 <= n_bytes; i += 4) {
                const auto value = static_cast<float>(step + digest64(host) % 7);
                std::memcpy(&message[i], &value, 4);
            }
            peers.publish(step, 1 + digest64(host) % 3, std::move(message));
            in_flight.push_back(step++);
            if (in_flight.size() > static_cast<size_t>(overlap)) {
                finish(peers.collect(in_flight.front()));
            }
        }
        while (!in_flight.empty()) {
            finish(peers.collect(in_flight.front()));
        }
    }
};

// All hosts that have a state after a step have the same; returns the last step that all have.
uint64_t check_equal(const std::vector<Toy> & toys) {
    std::map<uint64_t, uint64_t> all;
    for (const Toy & toy : toys) {
        for (const auto & [step, state] : toy.states) {
            REQUIRE(all.try_emplace(step, state).first->second == state);
        }
    }
    uint64_t last = ~0ull;
    for (const Toy & toy : toys) {
        last = std::min(last, toy.states.empty() ? 0 : toy.states.rbegin()->first);
    }
    return last;
}

StorePeersOptions peers_options(int i) {
    StorePeersOptions options;
    options.host       = format("host%d", i);
    options.poll       = Millis(500);
    options.lost_after = Millis(2000);
    options.drain      = Millis(2000);
    options.give_up    = Millis(60'000);
    return options;
}

// Runs n toy hosts on threads, each with its own view of the store.
std::vector<Toy> run_hosts(
    const std::function<Store &(int)> & store_of,
    const RunKeys &                     keys,
    int                                 n,
    uint64_t                            n_steps,
    int                                 overlap = 0,
    std::optional<ShardCodec>           dense   = std::nullopt
) {
    std::vector<Toy>         toys(static_cast<size_t>(n));
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i) {
        threads.emplace_back([&, i] {
            StorePeersOptions options = peers_options(i);
            options.shards            = dense;
            StorePeers peers(store_of(i), keys, options);
            toys[static_cast<size_t>(i)].run(
                peers, format("host%d", i), n_steps, overlap, Millis(5)
            );
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    return toys;
}

// The run is beyond its first rounds and has a checkpoint of its middle.
bool has_checkpoint(Store & store, const RunKeys & keys) {
    const auto chain = CommitLog(store, keys).load();
    return !chain.empty() && chain.back().commit.complete_at != kNone &&
           CommitLog(store, keys).read(chain.back().commit.complete_at)->commit.complete->index > 8;
}

}  // namespace

TEST_CASE("hosts_on_threads_over_memory_stay_equal", "[net][rounds]") {
    const int        overlap = GENERATE(0, 1);
    const RunKeys    keys    = test_keys(1);
    const auto       store   = make_memory_store();
    SequencerOptions order;
    order.membership = quick(4);
    SequencerThread sequencer(*store, keys, order, Millis(2));
    const auto      toys = run_hosts([&](int) -> Store & { return *store; }, keys, 4, 40, overlap);
    CHECK(check_equal(toys) >= 39);
    for (const Toy & toy : toys) {
        CHECK(toy.n_faults == 0);
    }
}

TEST_CASE("hosts_that_elect_their_sequencer_in_a_folder_stay_equal", "[net][rounds]") {
    const RunKeys                                 keys = test_keys(2);
    Scratch                                       folder;
    const auto                                    store = make_file_store(folder.path());
    std::vector<std::unique_ptr<SequencerThread>> sequencers;
    for (int i = 0; i < 3; ++i) {
        SequencerOptions order;
        order.name           = format("host%d", i);
        order.elected        = true;
        order.membership     = quick(3);
        order.presence_poll  = Millis(50);
        order.takeover_after = Millis(1000);
        sequencers.push_back(std::make_unique<SequencerThread>(*store, keys, order, Millis(5)));
    }
    const auto toys = run_hosts([&](int) -> Store & { return *store; }, keys, 3, 25);
    CHECK(check_equal(toys) >= 24);
}

TEST_CASE("a_bad_store_and_real_threads_stay_equal", "[net][rounds]") {
    const RunKeys    keys  = test_keys(3);
    const auto       store = make_memory_store();
    SequencerOptions order;
    order.membership = quick(3);
    std::vector<std::unique_ptr<FlakyStore>> bad;
    for (uint64_t i = 0; i < 4; ++i) {
        bad.push_back(std::make_unique<FlakyStore>(
            *store, FlakyOptions{.seed = i, .p_drop = 0.05, .p_delay = 0.1, .p_corrupt = 0.02}
        ));
    }
    SequencerThread sequencer(*bad[3], keys, order, Millis(2));
    const auto      toys =
        run_hosts([&](int i) -> Store & { return *bad[static_cast<size_t>(i)]; }, keys, 3, 30, 1);
    CHECK(check_equal(toys) >= 29);
}

TEST_CASE("a_hub_orders_rounds_and_a_late_host_loads_its_checkpoint", "[net][rounds]") {
    const RunKeys    keys = test_keys(4);
    Scratch          folder;
    SequencerOptions order;
    order.membership = quick(2);
    HubSequencer hooks(keys_from_hub_form(hub_form(keys)), order);
    HubOptions   options;
    options.path  = folder / "hub";
    options.keys  = keys;
    options.hooks = &hooks;
    options.quiet = true;
    Hub hub(options);
    hooks.report_to(hub);
    std::vector<Toy>         toys(3);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
            while (i == 2 && !has_checkpoint(hub.store(), keys)) {  // joins late
                std::this_thread::sleep_for(Millis(20));
            }
            HttpStoreOptions http;
            http.address     = format("127.0.0.1:%d", hub.port());
            http.keys        = &keys;
            http.host        = format("host%d", i);
            const auto store = make_http_store(http);
            StorePeers peers(*store, keys, peers_options(i));
            toys[static_cast<size_t>(i)].run(peers, format("host%d", i), 60, 0, Millis(40));
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    CHECK(check_equal(toys) >= 59);
    CHECK(toys[2].n_loaded == 1);
    CHECK(toys[2].states.size() < 60);
}

TEST_CASE("a_dense_exchange_gives_all_hosts_the_weighted_mean", "[net][rounds][dense]") {
    const RunKeys    keys  = test_keys(5);
    const auto       store = make_memory_store();
    SequencerOptions order;
    order.membership = quick(3);
    SequencerThread sequencer(*store, keys, order, Millis(2));
    const auto      toys =
        run_hosts([&](int) -> Store & { return *store; }, keys, 3, 6, 0, make_float_codec(5));
    CHECK(check_equal(toys) >= 5);
    for (size_t step = 0; step < 6; ++step) {
        double sum = 0, weights = 0;
        for (int i = 0; i < 3; ++i) {
            const uint64_t seed   = digest64(format("host%d", i));
            const double   weight = 1.0 + double(seed % 3);
            sum += weight * double(step + seed % 7);
            weights += weight;
        }
        for (const Toy & toy : toys) {
            REQUIRE(toy.whole.size() == 6 * 5);  // shards
            REQUIRE(toy.whole[5 * step + 4].size() == 20);
            float value = 0;
            std::memcpy(&value, &toy.whole[5 * step + 4][16], 4);
            CHECK(value == Approx(sum / weights));
        }
    }
}

// A line that can be cut: then nothing passes, and nothing is said.
class CutStore : public Store {
public:
    explicit CutStore(Store & inner) : inner_(inner) {}

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        pass();
        return inner_.put(key, value, if_absent);
    }
    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        pass();
        return inner_.get(key, wait);
    }
    std::vector<std::string> list(const std::string & prefix) override {
        pass();
        return inner_.list(prefix);
    }
    void remove(const std::string & key) override {
        pass();
        inner_.remove(key);
    }
    std::atomic<int> n_left{-1};  // calls until the cut; negative: none

private:
    void pass() {
        if (n_left == 0) {
            throw StoreError("cut");
        }
        if (n_left > 0) {
            --n_left;
        }
    }
    Store & inner_;
};

TEST_CASE("a_dense_exchange_survives_the_loss_of_an_averager", "[net][rounds][dense]") {
    for (const int n_calls : {33, 46}) {  // another point each time
        INFO("cut after " << n_calls);
        const RunKeys    keys  = test_keys(uint8_t(100 + n_calls));
        const auto       store = make_memory_store();
        SequencerOptions order;
        order.membership            = quick(3);
        order.membership.gone_after = Millis(600);
        SequencerThread          sequencer(*store, keys, order, Millis(2));
        CutStore                 line(*store);
        std::vector<Toy>         toys(3);
        std::vector<std::thread> threads;
        line.n_left = n_calls;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&, i] {
                StorePeersOptions options = peers_options(i);
                options.shards            = make_float_codec(6);
                options.poll              = Millis(100);
                if (i == 2) {
                    options.give_up = Millis(2500);
                    options.drain   = Millis(10);
                }
                try {
                    StorePeers peers(i == 2 ? static_cast<Store &>(line) : *store, keys, options);
                    toys[static_cast<size_t>(i)].run(peers, format("host%d", i), 8, 0, Millis(2));
                } catch (const Error &) {
                    CHECK(i == 2);
                }
            });
        }
        for (std::thread & thread : threads) {
            thread.join();
        }
        CHECK(line.n_left == 0);
        toys.pop_back();
        CHECK(check_equal(toys) >= 7);
    }
}

// The whole way of a tool: hosts.txt, meeting, settings, peers, end.
static std::vector<Toy>
run_tools(const Hosts & hosts, const Scratch & folder, int n, uint64_t n_steps) {
    std::vector<Toy>         toys(static_cast<size_t>(n));
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i) {
        threads.emplace_back([&, i] {
            const std::string name = format("host%d", i);
            MeetOptions       options;
            options.hub_path   = folder / "hub";
            options.membership = quick(1);
            if (i > 0) {
                std::this_thread::sleep_for(Millis(200));  // the hub's machine is the first
            }
            const auto meeting = meet(hosts, name, options);
            (void) agree_settings(
                meeting->store(), meeting->keys(), name,
                {{"steps", std::to_string(n_steps)}, {"min-hosts", std::to_string(n)}}, {"steps"}
            );
            auto peers = make_peers(*meeting, peers_options(i));
            toys[static_cast<size_t>(i)].run(*peers, format("host%d", i), n_steps, 0, Millis(5));
            peers.reset();
            meeting->finish(Millis(10'000));
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    return toys;
}

static int free_port() {
    const int   fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family      = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size          = sizeof address;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr *>(&address), size) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size) == 0);
    ::close(fd);
    return ntohs(address.sin_port);
}

TEST_CASE("hosts_that_meet_in_a_folder_or_at_the_first_host_stay_equal", "[net][rounds]") {
    Scratch     folder;
    const auto  place     = GENERATE(as<std::string>(), "folder", "star", "direct");
    const bool  is_folder = place == "folder";
    std::string text      = "key " + to_base64(Key32{9}) + "\n";
    text += is_folder ? "host0 -\n" : format("host0 127.0.0.1:%d\n", free_port());
    text += place == "direct" ? format("host1 127.0.0.1:%d\n", free_port()) : "host1 -\n";
    text += "host2 -\n";
    text += is_folder ? "store file://" + (folder / "shared") + "\n" : "";
    text += place == "direct" ? "delivery direct\n" : "";
    const auto toys = run_tools(parse_hosts(text, "hosts.txt"), folder, 3, 20);
    CHECK(check_equal(toys) == 19);
}

TEST_CASE("a_cache_serves_messages_and_forgets_the_oldest", "[net][rounds]") {
    auto        inner = make_memory_store();
    Store &     below = *inner;
    const auto  store = make_cached_store(std::move(inner), "r/message/", 500);
    const Bytes frame = make_frame(Key32{}, {.kind = 1, .host = "anna", .payload = {}});
    store->put("r/message/1", frame);
    store->put("r/other/1", frame);
    below.remove("r/message/1");
    below.remove("r/other/1");
    CHECK(store->get("r/message/1") == frame);  // it was kept
    CHECK_FALSE(store->get("r/other/1"));
    for (int i = 2; i < 20; ++i) {
        store->put(format("r/message/%d", i), frame);
    }
    CHECK_FALSE(store->get("r/message/1"));
    below.put("r/message/x", Bytes{1});  // not a whole frame: not kept
    CHECK(store->get("r/message/x"));
    below.remove("r/message/x");
    CHECK_FALSE(store->get("r/message/x"));
}

TEST_CASE("all_hosts_use_the_settings_of_the_first", "[net][rounds]") {
    const RunKeys  keys  = test_keys(6);
    const auto     store = make_memory_store();
    const Settings ours{{"batch", "16"}, {"steps", "100"}};
    CHECK(agree_settings(*store, keys, "anna", ours, {"batch"}) == ours);
    const Settings other{{"batch", "32"}, {"steps", "100"}};
    CHECK(agree_settings(*store, keys, "ben", other, {}) == ours);
    const std::string error = error_of([&] {
        (void) agree_settings(*store, keys, "ben", other, {"batch", "steps"});
    });
    CHECK(error.find("--batch 32 contradicts the run, which has '16'") != std::string::npos);
    MembershipOptions options;
    apply_settings(ours, options);
    CHECK(options.n_steps == 100);
}

TEST_CASE("the_last_step_leaves_a_complete_checkpoint", "[net][rounds]") {
    const RunKeys keys  = test_keys(7);
    const auto    store = make_memory_store();
    (void) agree_settings(
        *store, keys, "host0", {{"steps", "20"}, {"checkpoint-every", "1000"}, {"min-hosts", "2"}},
        {}
    );
    SequencerThread sequencer(*store, keys, {}, Millis(2));
    const auto      toys = run_hosts([&](int) -> Store & { return *store; }, keys, 2, 20);
    std::this_thread::sleep_for(Millis(200));
    const auto chain = CommitLog(*store, keys).load();
    REQUIRE(chain.back().commit.complete);
    CHECK(chain.back().commit.complete->step == 19);
    CHECK(chain.back().commit.complete->state_digest == toys[0].state);
}
