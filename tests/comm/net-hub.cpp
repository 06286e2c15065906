// The hub over real TLS on loopback: the store suite, waiting, hooks, restart, status, link check.
#include "comm/meet.h"
#include "comm/run/link-check.h"
#include "tests/comm/hub-fixture.h"
#include "tests/comm/hub-process.h"
#include "tests/comm/sim/sim-stores.h"

#include <mutex>

using namespace gt;

// Hosts remove nothing at a hub.
class RemovedInside : public sim::ForwardingStore {
public:
    RemovedInside(Store & client, Store & hub) : ForwardingStore(client), hub_(hub) {}
    void remove(const std::string & key) override { hub_.remove(key); }

private:
    Store & hub_;
};

TEST_CASE("hub_store_passes_the_suite", "[hub]") {
    const Scratch folder;
    const RunKeys keys = keys_of('A');
    Hub           hub(hub_options(folder));
    const auto    client = make_http_store(client_options(hub, keys));
    RemovedInside store(*client, hub.store());
    run_store_suite(store, "run/hub", {});
}

TEST_CASE("hub_passes_the_suite_without_the_network", "[hub]") {
    const Scratch folder;
    Hub           hub(hub_options(folder));
    run_store_suite(hub.store(), "run/inside", {});
}

TEST_CASE("connections_are_kept", "[hub][time]") {
    const Scratch    folder;
    const RunKeys    keys = keys_of('A');
    Hub              hub(hub_options(folder));
    HttpStoreOptions options = client_options(hub, keys);
    options.counters         = std::make_shared<LinkCounters>();
    const auto  store        = make_http_store(options);
    const Bytes value        = some_bytes(4'000'000, 1);
    for (int i = 0; i < 5; i++) {
        store->put("v/" + std::to_string(i), value);
        CHECK(holds(*store, "v/" + std::to_string(i), value));
    }
    CHECK(options.counters->n_connects <= uint64_t(options.n_connections + 2));
    CHECK(options.counters->bytes_up >= 20'000'000);
    CHECK(options.counters->bytes_up < 20'100'000);
    CHECK(options.counters->bytes_down >= 20'000'000);
    CHECK(options.counters->n_retries == 0);
}

TEST_CASE("the_upload_limit_is_kept", "[hub]") {
    const Scratch folder;
    const RunKeys keys = keys_of('A');
    Hub           hub(hub_options(folder));
    const auto    seconds_for = [&](uint64_t up_limit) {
        HttpStoreOptions options = client_options(hub, keys);
        options.up_limit         = make_upload_limit(up_limit);
        const auto store         = make_http_store(options);
        const auto begin         = std::chrono::steady_clock::now();
        store->put("v", some_bytes(1'500'000, up_limit));
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const double machine = seconds_for(0);  // cost of handshakes on this machine
    const double s       = seconds_for(1'000'000);
    CHECK(s > 1.2);
    CHECK(s < 10 * (1.5 + machine));  // an order of magnitude: timing on a busy machine varies
}

TEST_CASE("the_upload_limit_counts_for_the_hub_in_a_host_too", "[hub]") {
    const Scratch folder;
    const int     port = free_port();
    const Hosts   hosts =
        parse_hosts("key " + to_base64(Key32{7}) + format("\nanna 127.0.0.1:%d\n", port), "hosts");
    MeetOptions own;
    own.hub_path    = folder / "hub";
    own.up_limit    = make_upload_limit(1'000'000);
    const auto anna = meet(hosts, "anna", own);
    const auto ben  = meet(hosts, "ben");
    anna->store().put("v", some_bytes(1'500'000, 1));
    const auto begin = std::chrono::steady_clock::now();
    CHECK(holds(ben->store(), "v", some_bytes(1'500'000, 1)));
    CHECK(std::chrono::steady_clock::now() - begin > 1200ms);
}

TEST_CASE("an_unreachable_hub_is_an_error_that_says_what_to_do", "[hub]") {
    const RunKeys    keys = keys_of('A');
    HttpStoreOptions options;
    options.address  = "127.0.0.1:1";
    options.keys     = &keys;
    options.host     = "anna";
    options.give_up  = 500ms;
    const auto store = make_http_store(options);
    CHECK_THAT(error_of([&] { (void) store->get("a"); }), ContainsSubstring("port is open"));
}

TEST_CASE("of_several_addresses_the_one_with_the_run_s_key_is_used", "[hub]") {
    const Scratch folder, other;
    const RunKeys keys    = keys_of('A');
    HubOptions    strange = hub_options(other);
    strange.keys          = keys_of('B');
    Hub               hub(hub_options(folder)), another(strange);
    HttpStoreOptions  options = client_options(hub, keys);
    const std::string right = options.address, closed = "127.0.0.1:1",
                      wrong = "127.0.0.1:" + std::to_string(another.port());
    for (const std::string & all :
         {closed + "," + wrong + "," + right, right + "," + closed, wrong + "," + right}) {
        options.address  = all;
        const auto store = make_http_store(options);
        CHECK(store->put("k", Bytes{1}));
        CHECK(holds(*store, "k", Bytes{1}));
    }
    options.give_up = 1s;
    options.address = closed + "," + wrong;
    CHECK_THAT(
        error_of([&] { make_http_store(options)->put("k", Bytes{1}); }),
        ContainsSubstring(closed + ": ") && ContainsSubstring(wrong + ": ")
    );
    options.address = wrong + ",localhost:" + std::to_string(another.port());
    CHECK_THAT(
        error_of([&] { make_http_store(options)->put("k", Bytes{1}); }),
        ContainsSubstring("another key")
    );
}

namespace {

class RecordingHooks : public HubHooks {
public:
    void start(Store & store) override { store_ = &store; }
    void on_put(const std::string & key) override {
        std::lock_guard<std::mutex> lock(mutex);
        keys.push_back(key);
        if (key.starts_with("in/")) {
            store_->put("out/" + key.substr(3), Bytes{42});
        }
        if (key == "bad") {
            throw Error("an odd value");
        }
    }
    void tick(std::chrono::steady_clock::time_point) override { n_ticks++; }

    std::mutex               mutex;
    std::vector<std::string> keys;
    std::atomic<int>         n_ticks{0};

private:
    Store * store_ = nullptr;
};

}  // namespace

TEST_CASE("hooks_see_puts_in_order_and_their_answers_wake_hosts", "[hub]") {
    const Scratch  folder;
    const RunKeys  keys = keys_of('A');
    RecordingHooks hooks;
    HubOptions     options = hub_options(folder);
    options.hooks          = &hooks;
    Hub        hub(options);
    const auto store = make_http_store(client_options(hub, keys));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; i++) {
        store->put("in/" + std::to_string(i), some_bytes(i == 7 ? 2'000'000 : 10, 1));
        CHECK(store->get("out/" + std::to_string(i), 25s) == Bytes{42});
    }
    // a single missed wake-up would take 25 s
    CHECK(std::chrono::steady_clock::now() - begin < 25s);
    store->put("in/3", some_bytes(10, 1));  // again: not reported
    {
        std::lock_guard<std::mutex> lock(hooks.mutex
        );  // blocks the hooks: the next puts reach them together
        store->put("in/busy", Bytes{1});
        store->put("bad", Bytes{1});
        store->put("in/last", Bytes{1});
    }
    CHECK(store->get("out/last", 25s).has_value());
    std::lock_guard<std::mutex> lock(hooks.mutex);
    CHECK(hooks.keys.size() == 23);
    CHECK(hooks.keys[7] == "in/7");
    CHECK(hooks.n_ticks > 0);
    CHECK_THAT(read_text(folder / "hub/=hub/hub.log"), ContainsSubstring("an odd value"));
}

TEST_CASE("a_restarted_hub_has_everything", "[hub]") {
    const Scratch folder;
    const RunKeys keys  = keys_of('A');
    const Bytes   small = some_bytes(10, 1), large = some_bytes(1'500'000, 2);
    {
        Hub        hub(hub_options(folder));
        const auto store = make_http_store(client_options(hub, keys));
        store->put("a/small", small);
        store->put("a/large", large);
        CHECK(hub.add_metrics("anna", "step=1 loss=2"));
    }
    Hub        hub(hub_options(folder));
    const auto store = make_http_store(client_options(hub, keys));
    CHECK(store->list("") == std::vector<std::string>{"a/large", "a/small"});
    CHECK(holds(*store, "a/small", small));
    CHECK(holds(*store, "a/large", large));
    HttpClient client(raw_options(hub, keys));
    CHECK_THAT(client.perform({.path = "/status.json"}).text(), ContainsSubstring("[[1,2.0]]"));
}

TEST_CASE("the_status_page_is_one_file_without_external_resources", "[hub]") {
    const Scratch folder;
    HubOptions    options = hub_options(folder);
    options.status_port   = 0;
    Hub hub(options);
    for (int i = 0; i < 2000; i++) {
        const std::string line = format("step=%d loss=%g wait=0.1", i, 4.0 / (1 + i * 0.01));
        if (i % 10 == 0) {
            CHECK(hub.add_metrics("anna", line));
        }
    }
    HttpOptions plain;
    plain.base    = "http://127.0.0.1:" + std::to_string(hub.status_port());
    plain.give_up = 1s;
    HttpClient        client(plain);
    const std::string page = client.perform({.path = "/"}).text();
    CHECK_THAT(page, ContainsSubstring("status.json"));
    CHECK_THAT(
        page, !ContainsSubstring("http://") && !ContainsSubstring("https://") &&
                  !ContainsSubstring("src=")
    );
    const std::string json = client.perform({.path = "/status.json"}).text();
    CHECK_THAT(json, ContainsSubstring("\"name\":\"anna\"") && ContainsSubstring("\"step\":1990,"));
    CHECK(client.perform({.path = "/v/a"}).status == 404);  // only the page
    CHECK(client.perform({.path = "/", .headers = {"Host: evil.example"}}).status == 403);
    CHECK_THAT(
        client.perform({.path = "/metrics"}).text(), ContainsSubstring(" anna step=10 loss=")
    );
    for (const char * line : {"", "step", "step=x", "St=1", "a=nan", "a=1\nb=2"}) {
        CHECK_FALSE(hub.add_metrics("anna", line));
    }
    hub.fault("caf\xc3\xa9 \"<x>\" \xff");  // UTF-8 stays, a byte that is not UTF-8 is replaced
    CHECK_THAT(
        client.perform({.path = "/status.json"}).text(),
        ContainsSubstring("\"text\":\"caf\xc3\xa9 \\\"<x>\\\" \xef\xbf\xbd\"")
    );
}

TEST_CASE("the_link_check_measures_speed_delay_and_clock", "[hub]") {
    const Scratch    folder;
    const RunKeys    keys = keys_of('A');
    Hub              hub(hub_options(folder));
    HttpStoreOptions options = client_options(hub, keys);
    options.up_limit         = make_upload_limit(2'000'000);
    const LinkCheck line     = check_link(options);
    CHECK(line.delay_ms < 1000);
    CHECK(std::abs(line.clock_s) < 1);
    CHECK(line.up_mbit > 4);   // the limit is 16; bytes instead of bits would be 2
    CHECK(line.up_mbit < 40);  // with the first burst of a small round
    CHECK(line.down_mbit > line.up_mbit);
    CHECK(line.version == kVersion);
    CHECK_THAT(describe(line), ContainsSubstring("Mbit/s up"));
    LinkCheck off = line;
    off.clock_s   = 90;
    off.version   = "9.9";
    CHECK_THAT(describe(off), ContainsSubstring("90 s behind") && ContainsSubstring("version 9.9"));
    const RunKeys wrong = keys_of('B');
    options.keys        = &wrong;
    CHECK_THAT(error_of([&] { check_link(options); }), ContainsSubstring("another key"));
}
