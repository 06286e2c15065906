// What classify prints with --json.
#include "ggml-train/base/json.h"
#include "tests/catch.h"
#include "tools/classify/classify-report.h"

using namespace gt;

TEST_CASE("json_of_classify_is_valid_for_names_that_are_not_utf8") {
    const std::vector<std::string> names  = {"caf\xe9", "a \"b\"\n"};
    const std::vector<float>       logits = {1.0f, 0.0f};

    const auto answer = Json::parse(answer_text("p\xff\x01.png", logits, names, 2, true));
    REQUIRE(answer.has_value());
    CHECK(answer->string("picture") == "p\xef\xbf\xbd\x01.png");
    CHECK(answer->keys() == std::vector<std::string>{"picture", "answers"});

    Evaluation evaluation;
    evaluation.accuracy = 0.5;
    const auto report   = Json::parse(report_text("f\xc3\xb6t\xf6s", evaluation, names, true));
    REQUIRE(report.has_value());
    CHECK(report->string("data") == "f\xc3\xb6t\xef\xbf\xbds");
    CHECK(report->number("accuracy") == 0.5);
    CHECK(
        report->keys() ==
        std::vector<std::string>{"data", "pictures", "accuracy", "loss", "classes", "confusion"}
    );
}

TEST_CASE("json_of_classify_has_its_fields_in_a_fixed_order") {
    const std::vector<std::string> names = {"cat", "dog"};
    const std::vector<float>       even  = {0.0f, 0.0f};
    CHECK(
        answer_text("a.png", even, names, 2, true) ==
        R"({"picture":"a.png","answers":[{"class":"cat","share":0.5},{"class":"dog","share":0.5}]})"
    );
}
