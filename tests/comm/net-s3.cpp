// The S3 store against a real server; started by tests/e2e/s3-server.sh, which sets the environment.
#include "comm/http/http-client.h"
#include "comm/store/s3-settings.h"
#include "tests/catch.h"
#include "tests/comm/store-suite.h"
#include "tests/scratch.h"

#include <cstdlib>

using namespace gt;
using namespace std::chrono_literals;

static S3StoreOptions options_for(const std::string & url) {
    REQUIRE(std::getenv("AWS_ENDPOINT_URL"));  // run me through tests/e2e/s3-server.sh
    S3StoreOptions options;
    options.url     = url;
    options.stall   = 5s;
    options.give_up = 3s;
    return options;
}

// GT_S3=rclone: a server without If-None-Match, which the probe must find out.
static const char * const kServer         = std::getenv("GT_S3");
static const bool         kServerIsAtomic = !kServer || std::string(kServer) != "rclone";

TEST_CASE("s3_store_passes_the_suite", "[s3]") {
    const auto store = make_s3_store(options_for("s3://runs/some/prefix"));
    run_store_suite(*store, "run/s3", {.atomic = kServerIsAtomic});
}

TEST_CASE("s3_store_without_a_prefix_passes_the_suite", "[s3]") {
    const auto store = make_s3_store(options_for("s3://bare/"));
    run_store_suite(*store, "run", {.atomic = kServerIsAtomic});
}

TEST_CASE("a_large_value_is_sent_and_received_whole", "[s3]") {
    S3StoreOptions options = options_for("s3://runs/large");
    options.counters       = std::make_shared<LinkCounters>();
    const auto  store      = make_s3_store(options);
    const Bytes value      = some_bytes(20'000'001, 1);
    store->put("big", value);
    CHECK(options.counters->n_requests == 1);
    CHECK(holds(*store, "big", value));
    CHECK(store->list("") == std::vector<std::string>{"big"});
    store->remove("big");
    CHECK_FALSE(store->get("big").has_value());
}

TEST_CASE("more_keys_than_one_page_are_listed", "[s3]") {
    const auto               store = make_s3_store(options_for("s3://runs/many"));
    std::vector<std::string> keys;
    for (int i = 0; i < 1100; i++) {
        keys.push_back(format("k/%04d", i));
        store->put(keys.back(), Bytes{1});
    }
    CHECK(store->list("k/") == keys);
}

TEST_CASE("wrong_keys_are_an_error_that_says_what_to_do", "[s3]") {
    S3StoreOptions options = options_for("s3://runs/x");
    options.access_key     = "AKIDRUN";
    options.secret_key     = "wrong";
    const auto store       = make_s3_store(options);
    CHECK_THAT(
        error_of([&] { store->put("a", Bytes{1}); }), ContainsSubstring("AWS_SECRET_ACCESS_KEY")
    );
    CHECK_THAT(error_of([&] { (void) store->get("a"); }), ContainsSubstring("clock"));
}

// Not with SeaweedFS, which answers 500.
TEST_CASE("a_bucket_that_does_not_exist_is_not_created", "[s3][bucket]") {
    const auto store = make_s3_store(options_for("s3://rnus/x"));
    for (const size_t n : {size_t(1), size_t(9'000'000)}) {
        CHECK_THAT(
            error_of([&] { store->put("a", Bytes(n)); }), ContainsSubstring("create the bucket")
        );
    }
    CHECK_FALSE(store->get("a").has_value());
}

TEST_CASE("settings_come_from_url_environment_and_file", "[s3]") {
    const Scratch folder;
    write_text(
        folder / "credentials", "[other]\naws_access_key_id = no\n[default]\n# x\n"
                                "aws_access_key_id = FROMFILE\naws_secret_access_key=secret\n"
    );
    ::setenv("AWS_SHARED_CREDENTIALS_FILE", (folder / "credentials").c_str(), 1);
    const std::string id = std::getenv("AWS_ACCESS_KEY_ID"), url = std::getenv("AWS_ENDPOINT_URL");
    ::unsetenv("AWS_ACCESS_KEY_ID");
    ::unsetenv("AWS_ENDPOINT_URL");
    S3Settings s = s3_settings({.url = "s3://b/p/q/?region=eu-1"});
    CHECK(s.bucket == "b");
    CHECK(s.prefix == "p/q/");
    CHECK(s.region == "eu-1");
    CHECK(s.access_key == "FROMFILE");
    CHECK(s.secret_key == "secret");
    CHECK(s.endpoint == "https://s3.eu-1.amazonaws.com");
    s = s3_settings({.url = "s3://b?endpoint=http://127.0.0.1:9/"});
    CHECK(s.endpoint == "http://127.0.0.1:9");
    CHECK(s.prefix.empty());
    ::unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    ::setenv("HOME", folder.path().c_str(), 1);
    for (const char * wrong :
         {"s3://", "http://b", "s3://b/../c", "s3://b?x=1", "s3://b?endpoint=ftp://x", "s3://b"}) {
        CHECK_FALSE(error_of([&] { s3_settings({.url = wrong}); }).empty());
    }
    ::setenv("AWS_ACCESS_KEY_ID", id.c_str(), 1);
    ::setenv("AWS_ENDPOINT_URL", url.c_str(), 1);
}
