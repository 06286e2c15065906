// Values that the hub sends without a request, and requests that are sent twice.
#include "comm/http/feed.h"
#include "comm/wire/keys.h"
#include "tests/comm/hub-fixture.h"
#include "tests/comm/some-bytes.h"

#include <httplib.h>
#include <thread>

using namespace gt;

static bool wait_until(const std::function<bool()> & is_so) {
    for (int i = 0; i < 1000 && !is_so(); ++i) {
        std::this_thread::sleep_for(10ms);
    }
    return is_so();
}

TEST_CASE("ranges_cover_a_value_once", "[feed]") {
    const uint64_t size  = GENERATE(1, 8192, 8193, 100'000, 12'345'678);
    const int      lanes = GENERATE(1, 3, 16);
    uint64_t       next  = 0;
    for (int lane = 0; lane < lanes; ++lane) {
        const auto [offset, n] = lane_range(size, lane, lanes);
        if (size <= kSmallValue) {
            CHECK((offset == 0 && n == (lane < kSmallCopies ? size : 0)));
            next = size;
        } else {
            CHECK(offset == next);
            next += n;
        }
    }
    CHECK(next == size);
}

TEST_CASE("ranges_are_read_as_they_were_written", "[feed]") {
    const Bytes value = some_bytes(1000, 1);
    Bytes       lane;
    append_range(lane, {"r1/commit/5", 5000, 4000, value});
    append_range(lane, {});
    std::span<const uint8_t> short_of_one(lane.data(), 1000);
    CHECK(!take_range(short_of_one));
    CHECK(short_of_one.size() == 1000);

    std::span<const uint8_t> in    = lane;
    const auto               first = take_range(in);
    REQUIRE(first);
    CHECK(first->key == "r1/commit/5");
    CHECK((first->size == 5000 && first->offset == 4000));
    CHECK(std::equal(first->bytes.begin(), first->bytes.end(), value.begin(), value.end()));
    REQUIRE(take_range(in));
    CHECK(in.empty());

    Bytes beyond;
    append_range(beyond, {"key", 500, 0, value});
    std::span<const uint8_t> bad = beyond;
    CHECK_THROWS_AS((void) take_range(bad), Error);
}

TEST_CASE("values_arrive_without_requests", "[feed][hub]") {
    const Scratch folder;
    const RunKeys keys = keys_of('A');
    Hub           hub(hub_options(folder));
    auto          feeding = client_options(hub, keys);
    feeding.feed          = true;
    feeding.counters      = std::make_shared<LinkCounters>();
    const auto anna       = make_http_store(feeding);
    auto       other      = client_options(hub, keys);
    other.host            = "ben";
    const auto ben        = make_http_store(other);

    // the lanes are open once a new value is known without a request
    const RunPaths paths(keys.run);
    uint64_t       index = 0;
    REQUIRE(wait_until([&] {
        hub.store().put(paths.commit(++index), some_bytes(300, 1));
        const uint64_t before = feeding.counters->n_requests;
        return anna->get(paths.commit(index), 500ms) && feeding.counters->n_requests == before;
    }));

    const uint64_t before = feeding.counters->n_requests;
    const Bytes    large  = some_bytes(300'000, 1);
    ben->put(paths.message({7, "ben", 1}), large);
    CHECK(anna->get(paths.message({7, "ben", 1}), 10s) == large);
    CHECK(feeding.counters->n_requests == before);
    CHECK(!anna->get(paths.commit(index + 1)));  // not written yet: no request
    CHECK(feeding.counters->n_requests == before);

    // values that are older than the lanes, or of another kind, are requested
    CHECK(anna->get(paths.commit(1)));
    ben->put(paths.model(), some_bytes(100, 1));
    CHECK(anna->get(paths.model(), 5s));
    CHECK(feeding.counters->n_requests > before);
}

TEST_CASE("a_host_gets_the_messages_of_others_whatever_its_name_is", "[feed][hub]") {
    const Scratch     folder;
    const RunKeys     keys = keys_of('A');
    const RunPaths    paths(keys.run);
    Hub               hub(hub_options(folder));
    const std::string name    = GENERATE("message", "000000000007");  // parts of all keys
    auto              feeding = client_options(hub, keys);
    feeding.feed              = true;
    feeding.host              = name;
    feeding.counters          = std::make_shared<LinkCounters>();
    const auto receiver       = make_http_store(feeding);
    const auto ben            = make_http_store(client_options(hub, keys));

    uint64_t index = 6;
    REQUIRE(wait_until([&] {  // the lanes are open
        hub.store().put(paths.commit(++index), some_bytes(300, 1));
        const uint64_t before = feeding.counters->n_requests;
        return receiver->get(paths.commit(index), 500ms) && feeding.counters->n_requests == before;
    }));
    const uint64_t before = feeding.counters->n_requests;
    ben->put(paths.message({7, "ben", 1}), some_bytes(300, 2));
    CHECK(receiver->get(paths.message({7, "ben", 1}), 10s) == some_bytes(300, 2));
    CHECK(feeding.counters->n_requests == before);
}

TEST_CASE("a_feed_survives_its_hub", "[feed][hub]") {
    const Scratch  folder;
    const RunKeys  keys = keys_of('A');
    const RunPaths paths(keys.run);
    auto           options = hub_options(folder);
    auto           hub     = std::make_unique<Hub>(options);
    options.address        = "127.0.0.1:" + std::to_string(hub->port());
    auto feeding           = client_options(*hub, keys);
    feeding.feed           = true;
    const auto anna        = make_http_store(feeding);
    hub->store().put(paths.commit(1), some_bytes(300, 1));
    REQUIRE(anna->get(paths.commit(1), 5s));
    hub.reset();
    hub = std::make_unique<Hub>(options);
    for (uint64_t i = 2; i < 30; ++i) {  // before, while and after the lanes are opened again
        hub->store().put(paths.commit(i), some_bytes(300 + i, 1));
        const auto value = anna->get(paths.commit(i), 10s);
        REQUIRE(value);
        CHECK(*value == some_bytes(300 + i, 1));
        std::this_thread::sleep_for(20ms);
    }
}

TEST_CASE("a_request_that_takes_long_is_sent_on_a_second_connection", "[feed]") {
    httplib::Server  server;
    std::atomic<int> n_asked{0};
    server.Get("/slow", [&](const httplib::Request &, httplib::Response & response) {
        if (n_asked++ == 0) {
            std::this_thread::sleep_for(3s);
        }
        response.set_content("abc", "text/plain");
    });
    const int   port = server.bind_to_any_port("127.0.0.1");
    std::thread thread([&] { server.listen_after_bind(); });
    {
        HttpOptions options;
        options.base = "http://127.0.0.1:" + std::to_string(port);
        HttpClient  client(options);
        HttpRequest request;
        Bytes       into(3);
        request.path     = "/slow";
        request.into     = into;
        request.hedge    = GENERATE(true, false);
        n_asked          = 0;
        const auto begin = std::chrono::steady_clock::now();
        CHECK(client.perform(request).status == 200);
        CHECK(into == Bytes{'a', 'b', 'c'});
        const bool was_quick = std::chrono::steady_clock::now() - begin < 2500ms;
        CHECK(was_quick == request.hedge);
        CHECK(n_asked == (request.hedge ? 2 : 1));
    }
    server.stop();
    thread.join();
}

TEST_CASE("a_feed_keeps_values_until_they_are_read", "[feed]") {
    const RunPaths paths(1);
    const Bytes    value = some_bytes(500, 1);
    Feed           feed(1, 1);
    for (const std::string & key : {paths.message({7, "ben", 1}), paths.commit(7)}) {
        feed.add({key, value.size(), 0, value});
        CHECK(feed.find(key, 0ms, 0ms) == value);
        CHECK_FALSE(feed.find(key, 0ms, 0ms).has_value());
    }
}

// As the sequencer does with a value that is no commit. Copies of the old value may still be on their way.
TEST_CASE("a_commit_that_is_replaced_is_read_through_a_feed", "[feed][hub]") {
    const Scratch  folder;
    const RunKeys  keys = keys_of('A');
    const RunPaths paths(keys.run);
    Hub            hub(hub_options(folder));
    auto           feeding = client_options(hub, keys);
    feeding.feed           = true;
    const auto anna        = make_http_store(feeding);
    const auto later       = [&](const std::string & key, int letter) {
        hub.store().put(key, some_bytes(300, letter));
        return wait_until([&] { return anna->get(key, 500ms) == some_bytes(300, letter); });
    };
    REQUIRE(later(paths.commit(1), 1));
    CHECK(later(paths.commit(2), 2));
    hub.store().remove(paths.commit(2));
    CHECK(later(paths.commit(2), 3));
}
