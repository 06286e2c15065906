// The grammar of keys, and the table of stores.
#include "comm/store/store-kinds.h"
#include "comm/wire/keys.h"
#include "tests/catch.h"

using namespace gt;

TEST_CASE("keys_are_parsed_as_they_are_made", "[keys]") {
    const RunPaths    paths(0x1234);
    const std::string host = GENERATE("anna", "message", "a-b.c", "000000000007");

    const auto hello = paths.parse_presence(paths.hello(host, 3));
    REQUIRE(hello);
    CHECK(
        (hello->host == host && hello->incarnation == 3 && hello->kind == PresenceKey::Kind::hello)
    );
    CHECK(paths.parse_presence(paths.leave(host, 3))->kind == PresenceKey::Kind::leave);
    const PresenceKey stuck{PresenceKey::Kind::stuck, host, 9};
    CHECK(paths.parse_presence(paths.presence(stuck))->kind == PresenceKey::Kind::stuck);
    CHECK(paths.parse_commit(paths.commit(12)) == 12);

    const auto message = paths.parse_bulk(paths.message({7, host, 3}));
    REQUIRE(message);
    CHECK((message->is_message && message->id.index == 7 && message->id.host == host));
    CHECK(message->id.incarnation == 3);
    const auto shard = paths.parse_bulk(paths.shard({7, host, 3}, 5));
    REQUIRE(shard);
    CHECK((!shard->is_message && shard->id.host == host && shard->id.incarnation == 3));

    CHECK(paths.parse_floor(paths.floor(9)) == 9);
}

TEST_CASE("other_keys_are_not_parsed", "[keys]") {
    const RunPaths paths(1), other(2);
    CHECK(!paths.parse_bulk(other.message({7, "anna", 3})));
    CHECK(!paths.parse_bulk(paths.commit(7)));
    CHECK(!paths.parse_bulk(paths.messages(7) + "anna"));
    CHECK(!paths.parse_bulk(paths.messages(7) + "an na/1"));
    CHECK(!paths.parse_bulk(paths.messages(7) + "anna/1/2"));
    CHECK(!paths.parse_bulk(paths.messages() + "x/anna/1"));
    CHECK(!paths.parse_bulk(paths.shards(7) + "anna/1"));
    CHECK(!paths.parse_commit(paths.commits() + "7-0"));
    CHECK(!paths.parse_commit(paths.commits()));
    CHECK(!paths.parse_presence(paths.presences("anna") + "1-gone"));
    CHECK(!paths.parse_presence(paths.presences("anna") + "hello"));
    CHECK(!paths.parse_floor(paths.floors() + "9 "));
    CHECK(!paths.parse_floor(""));
}

TEST_CASE("every_kind_of_store_is_found_by_its_scheme", "[keys]") {
    for (const StoreKind & kind : store_kinds()) {
        CHECK(find_store_kind(kind.example) == &kind);
        CHECK(!find_store_kind(kind.scheme));
        CHECK(store_examples().find(kind.example) != std::string::npos);
    }
    CHECK(!find_store_kind("ftp://anna/x"));
    CHECK(!find_store_kind(""));
}
