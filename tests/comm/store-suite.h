// tests/comm/store-suite.h — the contract of Store: one list of claims for all implementations.
//
//   run_store_suite(*store, "some/prefix", {.atomic = true});
#pragma once

#include "comm/store/store.h"
#include "tests/catch.h"
#include "tests/comm/some-bytes.h"
#include "tests/fake/flaky-store.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace gt {

struct SuiteOptions {
    bool   atomic      = true;     // expected result of probe_atomic_create
    size_t large_bytes = 3000001;  // several ranges, and a short last one
};

inline bool holds(Store & store, const std::string & key, const Bytes & value) {
    const std::optional<Bytes> got = store.get(key);
    return got && *got == value;
}

inline void suite_values(Store & store, const std::string & at, const SuiteOptions & options) {
    // values of all sizes come back
    for (const size_t n :
         {size_t(0), size_t(1), size_t(1000), size_t(65536), options.large_bytes}) {
        const Bytes       value = some_bytes(n, n);
        const std::string key   = at + "/size-" + std::to_string(n);
        CHECK(store.put(key, value));
        CHECK(holds(store, key, value));
        CHECK(store.put(key, value));  // a repeated put is harmless
        CHECK(holds(store, key, value));
    }
    // a missing key
    CHECK_FALSE(store.get(at + "/nothing").has_value());
    CHECK_FALSE(store.get(at).has_value());
    // a removed key is missing, and may be removed again
    store.remove(at + "/size-1");
    CHECK_FALSE(store.get(at + "/size-1").has_value());
    store.remove(at + "/size-1");
    store.remove(at + "/size-1/below");
}

inline void suite_lists(Store & store, const std::string & at) {
    const std::vector<std::string> keys = {
        at + "/l/a", at + "/l/b/c", at + "/l/b/d", at + "/l/b~x", at + "/lx"};
    for (const std::string & key : keys) {
        store.put(key, Bytes{1});
    }
    std::vector<std::string> all = keys;
    std::sort(all.begin(), all.end());
    CHECK(store.list(at + "/l") == all);
    CHECK(store.list(at + "/l/b/") == std::vector<std::string>{at + "/l/b/c", at + "/l/b/d"});
    CHECK(store.list(at + "/l/b").size() == 3);
    CHECK(store.list(at + "/none/").empty());
    for (const std::string & key : keys) {
        store.remove(key);
    }
    CHECK(store.list(at + "/l").empty());
}

inline void suite_waits(Store & store, const std::string & at) {
    using namespace std::chrono;
    const Bytes value = some_bytes(100, 9);
    // no value: returns after about the wait
    const auto begin = steady_clock::now();
    CHECK_FALSE(store.get(at + "/never", milliseconds(300)).has_value());
    const auto waited = steady_clock::now() - begin;
    CHECK(waited >= milliseconds(290));
    CHECK(waited < seconds(10));
    // a value: returns soon after
    std::thread later([&] {
        std::this_thread::sleep_for(milliseconds(200));
        store.put(at + "/later", value);
    });
    const auto  start = steady_clock::now();
    const auto  got   = store.get(at + "/later", milliseconds(20'000));
    const auto  took  = steady_clock::now() - start;
    later.join();
    REQUIRE(got.has_value());
    CHECK(*got == value);
    CHECK(took < seconds(15));
}

inline void suite_creates(Store & store, const std::string & at, const SuiteOptions & options) {
    CHECK(probe_atomic_create(store, at + "/probe") == options.atomic);
    CHECK(store.list(at + "/probe").empty());
    if (!options.atomic) {
        return;
    }
    const Bytes mine = some_bytes(50, 1), other = some_bytes(50, 2);
    CHECK(store.put(at + "/once", mine, true));
    CHECK_FALSE(store.put(at + "/once", other, true));
    CHECK(store.put(at + "/once", mine, true));  // our own value again
    CHECK(holds(store, at + "/once", mine));
    const Bytes big = some_bytes(options.large_bytes, 3), big2 = some_bytes(options.large_bytes, 4);
    CHECK(store.put(at + "/big-once", big, true));
    CHECK_FALSE(store.put(at + "/big-once", big2, true));
    CHECK(holds(store, at + "/big-once", big));
}

inline void suite_threads(Store & store, const std::string & at) {
    constexpr int            kThreads = 6, kEach = 8;
    std::atomic<int>         n_wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; t++) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < kEach; i++) {
                const std::string key   = at + "/t/" + std::to_string(t) + "/" + std::to_string(i);
                const Bytes       value = some_bytes(size_t(1 + 7000 * i), uint64_t(100 * t + i));
                store.put(key, value);
                n_wrong += holds(store, key, value) ? 0 : 1;
                store.remove(key);
            }
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    CHECK(n_wrong == 0);
    CHECK(store.list(at + "/t/").empty());
}

inline void suite_keys(Store & store) {
    for (const char * key :
         {"", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "a b", "a%2fb", "a\\b", "=tmp/x", "a\nb",
          "\xc3\xa4"}) {
        CHECK_THROWS_AS(store.put(key, Bytes{1}), Error);
        CHECK_THROWS_AS(store.get(key), Error);
        CHECK_THROWS_AS(store.remove(key), Error);
    }
    CHECK(store.list("..").empty());
}

// Callers that try again until it works get the same result over a flaky store.
inline void suite_flaky(Store & store, const std::string & at) {
    FlakyStore flaky_store(store, {.seed = 7, .p_drop = 0.4, .p_repeat = 0.3, .p_delay = 0.1});
    Store &    flaky      = flaky_store;
    const auto until_done = [](const auto & call) {
        for (int attempt = 0; attempt < 50; attempt++) {
            try {
                return call();
            } catch (const StoreError &) {
            }
        }
        throw Error("50 drops in a row");
    };
    for (int i = 0; i < 12; i++) {
        const std::string key   = at + "/f/" + std::to_string(i);
        const Bytes       value = some_bytes(size_t(1 + 1000 * i), uint64_t(i));
        until_done([&] { return flaky.put(key, value); });
        CHECK(until_done([&] { return flaky.get(key); }) == value);
    }
    CHECK(until_done([&] { return flaky.list(at + "/f/"); }).size() == 12);
    CHECK(flaky_store.n_dropped > 0);
}

inline void run_store_suite(Store & store, const std::string & at, const SuiteOptions & options) {
    suite_values(store, at, options);
    suite_lists(store, at);
    suite_waits(store, at);
    suite_creates(store, at, options);
    suite_threads(store, at);
    suite_keys(store);
    suite_flaky(store, at);
    for (const std::string & key : store.list(at)) {
        store.remove(key);
    }
    CHECK(store.list(at).empty());
}

}  // namespace gt
