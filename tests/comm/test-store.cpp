// Stores without a network: memory and folder.
#include "comm/store/store.h"
#include "tests/catch.h"
#include "tests/comm/store-suite.h"
#include "tests/fake/store-memory.h"
#include "tests/scratch.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

using namespace gt;

TEST_CASE("memory_store_passes_the_suite", "[store]") {
    const auto store = make_memory_store();
    run_store_suite(*store, "run/memory", {});
}

TEST_CASE("file_store_passes_the_suite", "[store]") {
    const Scratch folder;
    const auto    store = make_file_store(folder.path() + "/new/folder/");
    run_store_suite(*store, "run/file", {});
}

TEST_CASE("file_store_is_seen_by_another_process", "[store]") {
    const Scratch folder;
    const auto    store = make_file_store(folder.path());
    const Bytes   value = some_bytes(100000, 5);
    const pid_t   child = ::fork();
    if (child == 0) {
        make_file_store(folder.path())->put("from/child", value);
        ::_exit(0);
    }
    const auto got = store->get("from/child", std::chrono::milliseconds(5000));
    ::waitpid(child, nullptr, 0);
    REQUIRE(got.has_value());
    CHECK(*got == value);
}

TEST_CASE("file_store_shows_no_partial_value_when_its_writer_is_killed", "[store]") {
    const Scratch folder;
    for (int attempt = 0; attempt < 8; attempt++) {
        const pid_t child = ::fork();
        if (child == 0) {
            const auto  store = make_file_store(folder.path());
            const Bytes value = some_bytes(400000, 6);
            for (int i = 0;; i++) {
                store->put("k/" + std::to_string(i % 10), value);
            }
        }
        ::usleep(useconds_t(10000 + 9000 * attempt));
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        const auto  store = make_file_store(folder.path());
        const Bytes value = some_bytes(400000, 6);
        for (const std::string & key : store->list("")) {
            CHECK(holds(*store, key, value));
        }
    }
}

TEST_CASE("a_folder_that_cannot_be_written_is_named", "[store]") {
    try {
        make_file_store("/proc/nowhere");
        FAIL("no error");
    } catch (const Error & e) {
        CHECK_THAT(
            e.what(), ContainsSubstring("/proc/nowhere") && ContainsSubstring("check the folder")
        );
    }
}

TEST_CASE("flaky_store_does_the_same_for_the_same_seed", "[store]") {
    const auto                    inner = make_memory_store();
    std::vector<std::vector<int>> runs;
    for (int run = 0; run < 2; run++) {
        FlakyStore flaky_store(*inner, {.seed = 3, .p_drop = 0.5, .p_delay = 0, .p_corrupt = 0.5});
        Store &    flaky = flaky_store;
        std::vector<int> seen;
        for (int i = 0; i < 50; i++) {
            try {
                flaky.put("a", Bytes(10, 1));
                seen.push_back(flaky.get("a") == Bytes(10, 1) ? 1 : 2);
            } catch (const StoreError &) {
                seen.push_back(0);
            }
        }
        runs.push_back(seen);
    }
    CHECK(runs[0] == runs[1]);
    CHECK(std::count(runs[0].begin(), runs[0].end(), 0) > 5);
    CHECK(std::count(runs[0].begin(), runs[0].end(), 2) > 2);
}
