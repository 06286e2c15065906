// Repositories of Hugging Face as the server describes them; tests/e2e/e2e-hf.sh downloads.
#include "tests/catch.h"
#include "tools/hf/hf.h"

using namespace gt;

namespace {

const std::string kSha(64, 'a'), kCommit(40, 'c');

std::string file(const std::string & name, const std::string & sha = kSha) {
    return R"({"rfilename": ")" + name + R"(", "lfs": {"sha256": ")" + sha + R"(", "size": 5}})";
}

HfRepo repo(const std::string & files) {
    return parse_hf_repo("anna/r", R"({"sha": ")" + kCommit + R"(", "siblings": [)" + files + "]}");
}

std::string complaint(const std::function<void()> & body) {
    try {
        body();
    } catch (const Error & error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("only_whole_gguf_files_inside_the_repository_are_listed") {
    const HfRepo found = repo(
        file("a.gguf") + "," + file("sub/B.GGUF") + "," + file("../out.gguf") + "," +
        file("/etc/x.gguf") + "," + file("a/../../x.gguf") + "," + file("readme.md") + "," +
        file("short.gguf", "abc") + "," + file("upper.gguf", std::string(64, 'A')) +
        R"(, {"rfilename": "small.gguf", "size": 1})"
    );
    REQUIRE(found.files.size() == 2);
    CHECK(found.files[0].name == "a.gguf");
    CHECK(found.files[1].name == "sub/B.GGUF");
    CHECK(found.files[1].n_bytes == 5);
    CHECK(found.commit == kCommit);
}

TEST_CASE("a_file_is_chosen_by_its_name_or_a_part_of_it") {
    const HfRepo two = repo(file("m-F16.gguf") + "," + file("m-Q8_0.gguf"));
    CHECK(choose_hf_file(two, "q8_0").name == "m-Q8_0.gguf");
    CHECK(choose_hf_file(two, "m-F16.gguf").name == "m-F16.gguf");
    CHECK_THAT(
        complaint([&] { choose_hf_file(two, ""); }),
        ContainsSubstring("several files") && ContainsSubstring("anna/r:m-F16.gguf  (5 bytes)")
    );
    CHECK_THAT(complaint([&] { choose_hf_file(two, "q4"); }), ContainsSubstring("no file q4"));
    CHECK(choose_hf_file(repo(file("only.gguf")), "").name == "only.gguf");
    CHECK_THAT(complaint([&] { choose_hf_file(repo(""), ""); }), ContainsSubstring("no GGUF file"));
    // a name that is a part of another one is still exact
    const HfRepo nested = repo(file("m.gguf") + "," + file("big-m.gguf"));
    CHECK(choose_hf_file(nested, "m.gguf").name == "m.gguf");
}

TEST_CASE("an_answer_of_another_kind_is_an_error") {
    for (const char * answer :
         {"", "null", "[]", "{}", R"({"sha": 5, "siblings": []})",
          R"({"sha": "../..", "siblings": []})"}) {
        INFO(answer);
        CHECK_THAT(
            complaint([&] { parse_hf_repo("anna/r", answer); }), ContainsSubstring("anna/r")
        );
    }
    CHECK_THAT(complaint([] { fetch_hf("../x"); }), ContainsSubstring("expected USER/REPO"));
}
