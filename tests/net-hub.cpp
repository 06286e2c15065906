// The hub over real TLS on loopback: the store suite, limits, keys, waiting, hooks, status.
#include "comm/http-client.h"
#include "comm/hub.h"
#include "tests/catch.h"
#include "tests/scratch.h"
#include "tests/store-suite.h"

#include <curl/curl.h>
#include <mutex>

using namespace gt;
using namespace std::chrono_literals;

static RunKeys keys_of(uint8_t fill) {
    Key32 secret;
    secret.fill(fill);
    return keys_from_secret(secret);
}

static HubOptions hub_options(const Scratch & folder) {
    HubOptions options;
    options.path  = folder / "hub";
    options.keys  = keys_from_hub_form(hub_form(keys_of('A')));  // it never needs more
    options.quiet = true;
    return options;
}

static HttpStoreOptions client_options(const Hub & hub, const RunKeys & keys) {
    HttpStoreOptions options;
    options.address = "127.0.0.1:" + std::to_string(hub.port());
    options.keys    = &keys;
    options.host    = "anna";
    options.stall   = 2s;
    options.give_up = 2s;
    return options;
}

static HttpOptions raw_options(const Hub & hub, const RunKeys & keys) {
    HttpOptions options;
    options.base    = "https://127.0.0.1:" + std::to_string(hub.port());
    options.keys    = &keys;
    options.headers = {"X-Host: anna"};
    options.stall   = 2s;
    options.give_up = 1s;
    return options;
}

// Status and body, by hand: `shown` is the certificate that the client presents.
static std::pair<long, std::string>
raw_get(const Hub & hub, const RunKeys & trusted, const RunKeys * shown) {
    const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(
        curl_easy_init(), curl_easy_cleanup
    );
    std::string body;
    const auto  blob = [](const std::string & text) {
        return curl_blob{const_cast<char *>(text.data()), text.size(), CURL_BLOB_COPY};
    };
    const auto set = [&](CURLoption option, auto value) {
        curl_easy_setopt(curl.get(), option, value);
    };
    const std::string url = "https://127.0.0.1:" + std::to_string(hub.port()) + "/v/secret";
    set(CURLOPT_URL, url.c_str());
    curl_blob ca = blob(trusted.certificate);
    set(CURLOPT_CAINFO_BLOB, &ca);
    set(CURLOPT_SSL_VERIFYHOST, 0L);
    set(CURLOPT_TIMEOUT, 5L);
    if (shown) {
        curl_blob certificate = blob(shown->certificate), key = blob(shown->key);
        set(CURLOPT_SSLCERT_BLOB, &certificate);
        set(CURLOPT_SSLKEY_BLOB, &key);
    }
    curl_slist * headers = curl_slist_append(nullptr, "X-Host: anna");
    headers = curl_slist_append(headers, ("Authorization: Bearer " + trusted.token).c_str());
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_WRITEDATA, &body);
    set(
        CURLOPT_WRITEFUNCTION,
        +[](char * from, size_t size, size_t n, void * to) {
            static_cast<std::string *>(to)->append(from, size * n);
            return size * n;
        }
    );
    long status = 0;
    if (curl_easy_perform(curl.get()) == CURLE_OK) {
        curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
    }
    curl_slist_free_all(headers);
    return {status, body};
}

TEST_CASE("hub_store_passes_the_suite", "[hub]") {
    const Scratch folder;
    const RunKeys keys = keys_of('A');
    Hub           hub(hub_options(folder));
    const auto    store = make_http_store(client_options(hub, keys));
    run_store_suite(*store, "run/hub", {});
}

TEST_CASE("hub_passes_the_suite_from_inside", "[hub]") {
    const Scratch folder;
    Hub           hub(hub_options(folder));
    run_store_suite(hub.store(), "run/inside", {});
}

TEST_CASE("connections_are_kept", "[hub]") {
    const Scratch    folder;
    const RunKeys    keys = keys_of('A');
    Hub              hub(hub_options(folder));
    HttpStoreOptions options = client_options(hub, keys);
    options.counters         = std::make_shared<LineCounters>();
    const auto  store        = make_http_store(options);
    const Bytes value        = some_bytes(4'000'000, 1);
    for (int i = 0; i < 5; i++) {
        store->put("v/" + std::to_string(i), value);
        CHECK(holds(*store, "v/" + std::to_string(i), value));
    }
    CHECK(options.counters->n_connects <= 6);
    CHECK(options.counters->bytes_up >= 20'000'000);
    CHECK(options.counters->bytes_up < 20'100'000);
    CHECK(options.counters->bytes_down >= 20'000'000);
    CHECK(options.counters->n_retries == 0);
}

TEST_CASE("the_upload_cap_holds", "[hub]") {
    const Scratch    folder;
    const RunKeys    keys = keys_of('A');
    Hub              hub(hub_options(folder));
    HttpStoreOptions options = client_options(hub, keys);
    options.up_limit         = 1'000'000;
    const auto store         = make_http_store(options);
    const auto begin         = std::chrono::steady_clock::now();
    store->put("v", some_bytes(1'500'000, 1));
    const double s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    CHECK(s > 1.2);
    CHECK(s < 3.0);
}

TEST_CASE("a_wrong_key_gets_nothing_past_the_handshake", "[hub]") {
    const Scratch folder;
    const RunKeys right = keys_of('A'), wrong = keys_of('B');
    Hub           hub(hub_options(folder));
    hub.store().put("secret", Bytes{1, 2, 3});

    SECTION("another run's key: told so, at once") {
        const auto store = make_http_store(client_options(hub, wrong));
        CHECK_THAT(error_of([&] { (void) store->get("secret"); }), Catch::Contains("another key"));
    }
    SECTION("it trusts the hub, but shows another certificate, or none") {
        CHECK(raw_get(hub, right, &right) == std::pair<long, std::string>{200, "\1\2\3"});
        CHECK(raw_get(hub, right, &wrong) == std::pair<long, std::string>{0, ""});
        CHECK(raw_get(hub, right, nullptr) == std::pair<long, std::string>{0, ""});
    }
    SECTION("no token") {
        RunKeys no_token = right;
        no_token.token   = "x";
        HttpClient         client(raw_options(hub, no_token));
        const HttpResponse r = client.perform({.path = "/v/secret"});
        CHECK(r.status == 401);
    }
    SECTION("the log names it") {
        const auto store = make_http_store(client_options(hub, wrong));
        CHECK_THROWS_AS(store->get("secret"), StoreError);
        std::string log;
        for (int i = 0; i < 100 && log.find("refused") == log.npos; i++) {
            std::this_thread::sleep_for(20ms);
            log = read_text(folder / "hub/=hub/hub.log");
        }
        CHECK_THAT(log, Catch::Contains("refused 127.0.0.1: no handshake with this run's key"));
    }
}

TEST_CASE("an_unreachable_hub_is_an_error_that_says_what_to_do", "[hub]") {
    const RunKeys    keys = keys_of('A');
    HttpStoreOptions options;
    options.address  = "127.0.0.1:1";
    options.keys     = &keys;
    options.host     = "anna";
    options.give_up  = 500ms;
    const auto store = make_http_store(options);
    CHECK_THAT(error_of([&] { (void) store->get("a"); }), Catch::Contains("port is open"));
}

TEST_CASE("limits_are_refusals_with_a_name", "[hub]") {
    const Scratch folder;
    const RunKeys keys      = keys_of('A');
    HubOptions    options   = hub_options(folder);
    options.max_value_bytes = 2'000'000;
    options.max_total_bytes = 3'000'000;
    options.max_keys        = 5;
    Hub        hub(options);
    const auto store = make_http_store(client_options(hub, keys));

    SECTION("one value") {
        CHECK_THAT(error_of([&] { store->put("a", Bytes(2'000'001)); }), Catch::Contains("limits"));
        CHECK(store->list("").empty());
    }
    SECTION("all values; removing makes room") {
        store->put("a", Bytes(1'900'000));
        CHECK_THAT(error_of([&] { store->put("b", Bytes(1'900'000)); }), Catch::Contains("full"));
        CHECK_THAT(error_of([&] { store->put("b", Bytes(1)); }), Catch::Equals(""));
        store->remove("a");
        store->put("b", Bytes(1'900'000));
        CHECK_THAT(read_text(folder / "hub/=hub/hub.log"), Catch::Contains("refused anna"));
    }
    SECTION("number of keys") {
        for (int i = 0; i < 5; i++) {
            store->put("k" + std::to_string(i), Bytes(10));
        }
        CHECK_THAT(error_of([&] { store->put("k5", Bytes(10)); }), Catch::Contains("keys"));
    }
    SECTION("malformed requests") {
        HttpClient  client(raw_options(hub, keys));
        const Bytes body(100000);
        const auto  status = [&](const std::string & method, const std::string & path) {
            return client
                .perform({.method = method, .path = path, .body = body, .has_body = method == "PUT"}
                 )
                .status;
        };
        CHECK(status("PUT", "/v/..%2f..%2fetc%2fx") == 400);
        CHECK(status("PUT", "/v/a?upload=u&part=0&part_bytes=0&size=100000") == 400);
        CHECK(status("PUT", "/v/a?upload=u&part=9&part_bytes=100000&size=100000") == 400);
        CHECK(status("PUT", "/v/a?upload=u&part=x&part_bytes=100000&size=100000") == 400);
        CHECK(status("PUT", "/v/a?upload=u&part=0&part_bytes=100000&size=99999999999999") == 400);
        CHECK(status("GET", "/missing/a?upload=u&part_bytes=0&size=5") == 400);
        CHECK(status("GET", "/v/a?wait=-1") == 400);
        CHECK(status("GET", "/nothing") == 404);
        CHECK(status("GET", "/v/" + std::string(700, 'a')) == 400);
        const Bytes        large(1'200'000);
        const HttpResponse r =
            client.perform({.method = "PUT", .path = "/v/a", .body = large, .has_body = true});
        CHECK((r.status == 413 || r.status == 0));
        CHECK(store->list("").empty());
    }
}

TEST_CASE("a_host_that_asks_too_fast_waits", "[hub]") {
    const Scratch folder;
    const RunKeys keys      = keys_of('A');
    HubOptions    options   = hub_options(folder);
    options.host_requests_s = 20;
    options.max_hosts       = 2;
    Hub              hub(options);
    HttpStoreOptions client = client_options(hub, keys);
    client.counters         = std::make_shared<LineCounters>();
    const auto store        = make_http_store(client);
    for (int i = 0; i < 50; i++) {
        CHECK_FALSE(store->get("a").has_value());
    }
    CHECK(client.counters->n_retries > 0);
    CHECK_THAT(read_text(folder / "hub/=hub/hub.log"), Catch::Contains("per second for one host"));
    // one host's hurry does not slow another's
    client.host     = "ben";
    client.counters = std::make_shared<LineCounters>();
    CHECK_FALSE(make_http_store(client)->get("a").has_value());
    CHECK(client.counters->n_retries == 0);
    client.host = "carl";
    CHECK_THAT(
        error_of([&] { (void) make_http_store(client)->get("a"); }),
        Catch::Contains("number of hosts")
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
        CHECK(store->get("out/" + std::to_string(i), 5s) == Bytes{42});
    }
    CHECK(std::chrono::steady_clock::now() - begin < 5s);
    store->put("in/3", some_bytes(10, 1));  // again: not reported
    store->put("bad", Bytes{1});
    store->put("in/last", Bytes{1});
    CHECK(store->get("out/last", 5s).has_value());
    std::lock_guard<std::mutex> lock(hooks.mutex);
    CHECK(hooks.keys.size() == 22);
    CHECK(hooks.keys[7] == "in/7");
    CHECK(hooks.n_ticks > 0);
    CHECK_THAT(read_text(folder / "hub/=hub/hub.log"), Catch::Contains("an odd value"));
}

TEST_CASE("a_hub_that_starts_again_has_everything", "[hub]") {
    const Scratch folder;
    const RunKeys keys  = keys_of('A');
    const Bytes   small = some_bytes(10, 1), large = some_bytes(1'500'000, 2);
    {
        Hub        hub(hub_options(folder));
        const auto store = make_http_store(client_options(hub, keys));
        store->put("a/small", small);
        store->put("a/large", large);
        store->put(
            "metrics/anna/1", Bytes{'s', 't', 'e', 'p', '=', '1', ' ', 'l', 'o', 's', 's', '=', '2'}
        );
    }
    Hub        hub(hub_options(folder));
    const auto store = make_http_store(client_options(hub, keys));
    CHECK(store->list("") == std::vector<std::string>{"a/large", "a/small"});
    CHECK(holds(*store, "a/small", small));
    CHECK(holds(*store, "a/large", large));
    HttpClient client(raw_options(hub, keys));
    CHECK_THAT(client.perform({.path = "/status.json"}).text(), Catch::Contains("[[1,2]]"));
}

TEST_CASE("the_status_page_is_one_file_without_outside_resources", "[hub]") {
    const Scratch folder;
    const RunKeys keys    = keys_of('A');
    HubOptions    options = hub_options(folder);
    options.status_port   = 0;
    Hub        hub(options);
    const auto store = make_http_store(client_options(hub, keys));
    for (int i = 0; i < 2000; i++) {
        const std::string line = format("step=%d loss=%g wait=0.1", i, 4.0 / (1 + i * 0.01));
        hub.store();  // the store itself does not take metrics
        if (i % 10 == 0) {
            store->put("metrics/anna/" + std::to_string(i), Bytes(line.begin(), line.end()));
        }
    }
    CHECK(store->list("metrics").empty());
    HttpOptions plain;
    plain.base    = "http://127.0.0.1:" + std::to_string(hub.status_port());
    plain.give_up = 1s;
    HttpClient        client(plain);
    const std::string page = client.perform({.path = "/"}).text();
    CHECK_THAT(page, Catch::Contains("status.json"));
    CHECK_THAT(
        page,
        !Catch::Contains("http://") && !Catch::Contains("https://") && !Catch::Contains("src=")
    );
    const std::string json = client.perform({.path = "/status.json"}).text();
    CHECK_THAT(json, Catch::Contains("\"name\":\"anna\"") && Catch::Contains("\"step\":1990"));
    CHECK(client.perform({.path = "/v/a"}).status == 404);  // only the page
    CHECK(client.perform({.path = "/", .headers = {"Host: evil.example"}}).status == 403);
    CHECK_THAT(client.perform({.path = "/metrics"}).text(), Catch::Contains(" anna step=10 loss="));
    for (const char * line : {"", "step", "step=x", "St=1", "a=nan", "a=1\nb=2"}) {
        const std::string text = line;
        CHECK_THROWS_AS(store->put("metrics/anna/x", Bytes(text.begin(), text.end())), StoreError);
    }
}
