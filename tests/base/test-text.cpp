#include "ggml-train/base/text.h"
#include "tests/catch.h"

using namespace gt;

TEST_CASE("numbers_have_units_that_fit_their_size") {
    CHECK(time_text(8.4) == "8s");
    CHECK(time_text(80) == "1m20s");
    CHECK(time_text(3900) == "1h05m");
    CHECK(time_text(90000) == "1d01h");
    CHECK(count_text(870) == "870");
    CHECK(count_text(12345) == "12.3k");
    CHECK(count_text(1250000) == "1.25M");
    CHECK(count_text(999.9) == "1.00k");
    CHECK(bytes_text(999) == "999 bytes");
    CHECK(bytes_text(3'210'000'000) == "3.2 GB");
}

TEST_CASE("printable_text_is_utf8_without_control_characters") {
    CHECK(printable("a\tb\n\x1b[31m\x7f") == "a\tb\n.[31m.");
    CHECK(printable("été, 語, 🜂") == "été, 語, 🜂");
    CHECK(printable("o\xc9hm\xe8\xaa") == "o.hm..");  // cut off
    CHECK(printable("\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \x80") == ".. ... .... .");
}
