#include "ggml-train/base/json.h"
#include "tests/catch.h"

#include <limits>

using namespace gt;

TEST_CASE("json_keeps_utf8_and_replaces_invalid_bytes") {
    CHECK(Json("caf\xc3\xa9 \xe2\x82\xac").text() == "\"caf\xc3\xa9 \xe2\x82\xac\"");
    CHECK(Json("a\xff z").text() == "\"a\xef\xbf\xbd z\"");    // never valid
    CHECK(Json("cut \xc3").text() == "\"cut \xef\xbf\xbd\"");  // half a character
    CHECK(Json::object().set("\xe9", 1).text() == "{\"\xef\xbf\xbd\":1}");
}

TEST_CASE("json_escapes_quotes_and_control_characters") {
    CHECK(Json("a\"b\\c\n\x1b[31m").text() == "\"a\\\"b\\\\c\\n\\u001b[31m\"");
    const std::string zero("a\0b", 3);
    CHECK(Json(zero).text() == "\"a\\u0000b\"");
}

TEST_CASE("json_fields_keep_their_order_and_numbers_their_digits") {
    Json json = Json::object();
    json.set("z", uint64_t(18446744073709551615ull)).set("a", -3).set("x", 0.1f).set("y", 0.25);
    json.set("list", Json::array().push("one").push(2).push(true)).set("none", Json());
    CHECK(
        json.text() == "{\"z\":18446744073709551615,\"a\":-3,\"x\":0.100000001,\"y\":0.25,"
                       "\"list\":[\"one\",2,true],\"none\":null}"
    );
    CHECK(Json(std::numeric_limits<float>::quiet_NaN()).text() == "null");
    CHECK(Json(std::numeric_limits<double>::infinity()).text() == "null");
}

TEST_CASE("json_parses_what_it_wrote_and_refuses_torn_text") {
    const auto json = Json::parse("{\"step\":12,\"loss\":null,\"name\":\"\\u00e9\",\"x\":1.5}");
    REQUIRE(json);
    CHECK(json->number("step") == 12.0);
    CHECK(json->number("x") == 1.5);
    CHECK(json->string("name") == "\xc3\xa9");
    CHECK_FALSE(json->number("loss"));
    CHECK_FALSE(json->number("name"));
    CHECK_FALSE(json->string("missing"));
    CHECK(json->keys() == std::vector<std::string>{"step", "loss", "name", "x"});
    CHECK_FALSE(Json::parse("{\"step\":38,\"tok"));
    CHECK_FALSE(Json::parse("{} {}"));
    CHECK_FALSE(Json::parse(""));
    CHECK_FALSE(Json::parse("7")->is_object());
    CHECK_FALSE(Json::parse("7")->number("step"));
}
