// Requests that the hub refuses: wrong keys, too much, too fast, malformed; each with a log entry.
#include "comm/run/hosts.h"
#include "comm/wire/keys.h"
#include "tests/comm/hub-fixture.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace gt;

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

TEST_CASE("a_wrong_key_gets_nothing_past_the_handshake", "[hub]") {
    const Scratch folder;
    const RunKeys right = keys_of('A'), wrong = keys_of('B');
    Hub           hub(hub_options(folder));
    hub.store().put("secret", Bytes{1, 2, 3});

    SECTION("another run's key: told so, at once") {
        const auto store = make_http_store(client_options(hub, wrong));
        CHECK_THAT(
            error_of([&] { (void) store->get("secret"); }), ContainsSubstring("another key")
        );
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
        CHECK_THAT(log, ContainsSubstring("refused 127.0.0.1: no handshake with this run's key"));
    }
}

TEST_CASE("a_host_is_told_that_its_hub_is_full", "[hub]") {
    const Scratch folder;
    HubOptions    options   = hub_options(folder);
    options.max_total_bytes = 100'000;
    Hub                      hub(options);
    const RunKeys            keys = keys_of('A');
    const RunPaths           paths(keys.run);
    const std::string        old = paths.message(1, "anna", 1);
    std::vector<std::string> told;
    HttpStoreOptions         to_hub = client_options(hub, keys);
    to_hub.on_trouble               = [&](const std::string & what) {
        told.push_back(what);
        hub.store().remove(old);
    };
    const auto store = make_http_store(to_hub);
    CHECK(store->put(old, Bytes(90'000)));
    CHECK(store->put(paths.message(2, "anna", 1), Bytes(20'000)));
    REQUIRE(told.size() == 2);
    CHECK_THAT(
        told[0], ContainsSubstring("refuses what we send (the hub's 100 kB are full; start it with")
    );
    CHECK(told[1] == "takes values again");
}

TEST_CASE("a_refused_request_names_the_limit", "[hub]") {
    const Scratch folder;
    const RunKeys keys      = keys_of('A');
    HubOptions    options   = hub_options(folder);
    options.max_value_bytes = 2'000'000;
    options.max_total_bytes = 3'000'000;
    options.max_keys        = 5;
    Hub              hub(options);
    HttpStoreOptions client = client_options(hub, keys);
    client.give_up          = 1500ms;
    const auto store        = make_http_store(client);

    SECTION("one value") {
        CHECK_THAT(
            error_of([&] { store->put("a", Bytes(2'000'001)); }), ContainsSubstring("limits")
        );
        CHECK(store->list("").empty());
    }
    SECTION("all values; removing makes room") {
        store->put("a", Bytes(1'900'000));
        CHECK_THAT(error_of([&] { store->put("b", Bytes(1'900'000)); }), ContainsSubstring("full"));
        CHECK_THAT(error_of([&] { store->put("b", Bytes(1)); }), Catch::Matchers::Equals(""));
        hub.store().remove("a");
        store->put("b", Bytes(1'900'000));
        CHECK_THAT(read_text(folder / "hub/=hub/hub.log"), ContainsSubstring("refused anna"));
    }
    SECTION("number of keys") {
        for (int i = 0; i < 5; i++) {
            store->put("k" + std::to_string(i), Bytes(10));
        }
        CHECK_THAT(error_of([&] { store->put("k5", Bytes(10)); }), ContainsSubstring("keys"));
    }
    SECTION("malformed requests") {
        HttpClient  raw(raw_options(hub, keys));
        const Bytes body(100000);
        const auto  status = [&](const std::string & method, const std::string & path) {
            return raw
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
            raw.perform({.method = "PUT", .path = "/v/a", .body = large, .has_body = true});
        CHECK((r.status == 413 || r.status == 0));
        CHECK(store->list("").empty());
    }
}

TEST_CASE("a_host_over_its_request_limit_waits", "[hub]") {
    const Scratch folder;
    const RunKeys keys      = keys_of('A');
    HubOptions    options   = hub_options(folder);
    options.host_requests_s = 1;  // even a busy machine is faster than that
    Hub              hub(options);
    HttpStoreOptions client = client_options(hub, keys);
    client.counters         = std::make_shared<LinkCounters>();
    const auto store        = make_http_store(client);
    for (int i = 0; i < 4 || (i < 100 && client.counters->n_retries == 0); i++) {
        CHECK_FALSE(store->get("a").has_value());
    }
    CHECK(client.counters->n_retries > 0);
    CHECK_THAT(
        read_text(folder / "hub/=hub/hub.log"), ContainsSubstring("bytes or requests per second")
    );
    // the limit of one host does not affect another
    client.host     = "ben";
    client.counters = std::make_shared<LinkCounters>();
    CHECK_FALSE(make_http_store(client)->get("a").has_value());
    CHECK(client.counters->n_retries == 0);
}

TEST_CASE("a_connection_without_a_handshake_is_closed", "[hub]") {
    const Scratch folder;
    Hub           hub(hub_options(folder));
    const int     fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in   address{};
    address.sin_family      = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port        = htons(uint16_t(hub.port()));
    REQUIRE(::connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
    REQUIRE(::write(fd, "\x16\x03", 2) == 2);  // the first bytes of a handshake, and no more
    const timeval timeout{20, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    char       byte;
    const auto begin = std::chrono::steady_clock::now();
    CHECK(::read(fd, &byte, 1) <= 0);
    CHECK(std::chrono::steady_clock::now() - begin < 15s);
    ::close(fd);
    std::string log;
    for (int i = 0; i < 100 && log.find("refused") == log.npos; i++) {
        std::this_thread::sleep_for(20ms);
        log = read_text(folder / "hub/=hub/hub.log");
    }
    CHECK_THAT(log, ContainsSubstring("no handshake"));
}

// A connection from 127.0.0.`from` with the first bytes of a handshake, and no more.
static int begin_handshake(const Hub & hub, int from) {
    const int   fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family      = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + uint32_t(from) - 1);
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port        = htons(uint16_t(hub.port()));
    REQUIRE(::connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
    REQUIRE(::write(fd, "\x16\x03", 2) == 2);
    return fd;
}

static bool is_open(int fd) {
    char byte;
    return ::recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

TEST_CASE("peers_without_the_key_can_t_take_all_connections", "[hub]") {
    const Scratch folder;
    const RunKeys keys      = keys_of('A');
    HubOptions    options   = hub_options(folder);
    options.max_connections = 100;  // so 25 without a handshake, 16 of one address
    Hub              hub(options);
    std::vector<int> unknown;
    const auto n_open = [&] { return std::count_if(unknown.begin(), unknown.end(), is_open); };
    SECTION("of one address") {
        for (int i = 0; i < 60; i++) {
            unknown.push_back(begin_handshake(hub, 2));
        }
        for (int i = 0; i < 100 && n_open() > 16; i++) {
            std::this_thread::sleep_for(20ms);
        }
        CHECK(n_open() <= 16);
    }
    SECTION("of many addresses; the oldest end first") {
        for (int i = 0; i < 120; i++) {
            unknown.push_back(begin_handshake(hub, 2 + i));
        }
        for (int i = 0; i < 100 && n_open() > 25; i++) {
            std::this_thread::sleep_for(20ms);
        }
        CHECK(n_open() <= 25);
    }
    const auto store = make_http_store(client_options(hub, keys));
    CHECK(store->put("a", Bytes{1}));
    for (const int fd : unknown) {
        ::close(fd);
    }
}

TEST_CASE("the_hub_answers_over_ipv4_and_ipv6", "[hub]") {
    const Scratch folder;
    const RunKeys keys    = keys_of('A');
    HubOptions    options = hub_options(folder);
    options.address       = listen_address({.name = "hub", .address = "example.org:0"});
    CHECK(options.address == "[::]:0");
    Hub              hub(options);
    HttpStoreOptions client = client_options(hub, keys);
    CHECK(make_http_store(client)->put("a", Bytes{1}));
    client.address        = "[::1]:" + std::to_string(hub.port());
    const int          fd = ::socket(AF_INET6, SOCK_STREAM, 0);
    const sockaddr_in6 any{
        .sin6_family   = AF_INET6,
        .sin6_port     = 0,
        .sin6_flowinfo = 0,
        .sin6_addr     = in6addr_loopback,
        .sin6_scope_id = 0};
    const bool has_ipv6 =
        fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr *>(&any), sizeof any) == 0;
    ::close(fd);
    if (has_ipv6) {
        CHECK(make_http_store(client)->put("b", Bytes{1}));
    } else {
        WARN("this machine has no IPv6");
    }
}

TEST_CASE("control_characters_of_a_request_do_not_reach_the_log", "[hub]") {
    const Scratch folder;
    const RunKeys keys = keys_of('A');
    Hub           hub(hub_options(folder));
    HttpClient    raw(raw_options(hub, keys));
    const auto    r = raw.perform({.path = "/v/a%1b%5b2Jb%7fc"});
    CHECK(r.status == 400);
    CHECK_THAT(r.text(), ContainsSubstring("a?[2Jb?c"));
    CHECK_THAT(read_text(folder / "hub/=hub/hub.log"), ContainsSubstring("a?[2Jb?c"));
}
