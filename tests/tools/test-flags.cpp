#include "tests/catch.h"
#include "tools/cli/flags.h"
#include "tools/cli/host-name.h"

#include <algorithm>
#include <sstream>

using namespace gt;

namespace {

struct Options {
    std::string              model, kind = "cosine";
    int64_t                  steps    = 1000;
    int                      threads  = 2;
    uint64_t                 seed     = 1;
    float                    lr       = 3e-4f;
    bool                     portable = false, tied = true;
    std::vector<std::string> data;
    uint64_t                 every   = 0;
    bool                     overlap = false;
    std::vector<std::string> files;
    double                   share  = 0.5;
    int                      rounds = 1;
    double                   last   = 0.1;
};

Flags table(Options & o) {
    Flags visit("tool", "tests flags", "-m FILE");
    visit.group("Model");
    visit("model,m", o.model, "model to train");
    visit("kind", o.kind, "shape", {"cosine", "linear"});
    visit.group("Run");
    visit("steps", o.steps, "weight updates");
    visit("threads,t", o.threads, "threads");
    visit("seed", o.seed, "seed");
    visit("lr", o.lr, "rate");
    visit("last-ratio,last", o.last, "the last rate, of the first");
    visit("portable", o.portable, "portable");
    visit("tied", o.tied, "tied");
    visit("data", o.data, "data");
    visit("steps-per-round,every", o.every, "steps per round");
    visit("share", o.share, "a share", {}, 0, 1);
    visit("rounds", o.rounds, "rounds", {}, 1);
    visit("overlap", o.overlap, "overlap", {"0", "1"});
    visit.refuse("last", "name a ratio with --last-ratio");
    visit.refuse("ub", "name the micro-batch with --micro");
    visit.positional("FILES", o.files, "files");
    return visit;
}

Options parse(std::vector<const char *> words) {
    words.insert(words.begin(), "tool");
    Options o;
    table(o).parse(static_cast<int>(words.size()), words.data());
    return o;
}

std::string complaint(std::vector<const char *> words) {
    try {
        parse(std::move(words));
    } catch (const UsageError & error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("flags_are_read_in_every_form") {
    const Options o = parse(
        {"-m", "a.gguf", "--steps=10k", "-t", "4", "--lr", "1e-3", "--portable", "--no-tied",
         "--data", "x", "--data", "y", "--kind", "linear", "f1", "--", "-f2"}
    );
    CHECK(o.model == "a.gguf");
    CHECK(o.steps == 10000);
    CHECK(o.threads == 4);
    CHECK(o.lr == 1e-3f);
    CHECK(o.portable);
    CHECK_FALSE(o.tied);
    CHECK(o.data == std::vector<std::string>{"x", "y"});
    CHECK(o.kind == "linear");
    CHECK(o.files == std::vector<std::string>{"f1", "-f2"});
    CHECK(parse({"--steps", "1.5M"}).steps == 1500000);
    CHECK(parse({"--steps", "2Ki"}).steps == 2048);
    CHECK(parse({"--seed", "18446744073709551615"}).seed == 18446744073709551615ull);
    CHECK(parse({"--model", "-"}).model == "-");
}

TEST_CASE("wrong_usage_is_named_with_a_hint") {
    CHECK_THAT(complaint({"--stpes", "3"}), ContainsSubstring("did you mean --steps?"));
    CHECK_THAT(complaint({"--port"}), ContainsSubstring("did you mean --portable?"));
    CHECK_THAT(complaint({"--xylophone"}), !ContainsSubstring("did you mean"));
    CHECK_THAT(complaint({"--steps"}), ContainsSubstring("needs a value"));
    CHECK_THAT(complaint({"--steps", "ten"}), ContainsSubstring("whole number"));
    CHECK_THAT(complaint({"--steps", "1.5"}), ContainsSubstring("whole number"));
    CHECK_THAT(complaint({"--threads", "10G"}), ContainsSubstring("--threads 10G"));
    CHECK_THAT(complaint({"--seed", "-1"}), ContainsSubstring("not negative"));
    CHECK_THAT(complaint({"--lr", "fast"}), ContainsSubstring("a number"));
    CHECK_THAT(complaint({"--lr", "nan"}), ContainsSubstring("a number"));
    CHECK_THAT(complaint({"--kind", "step"}), ContainsSubstring("cosine, linear"));
    CHECK_THAT(complaint({"--no-steps"}), ContainsSubstring("unknown flag"));
    Options o;
    CHECK_THROWS_AS(table(o).require("model"), UsageError);
}

TEST_CASE("a_flag_has_one_value_and_a_list_collects_them") {
    CHECK_THAT(
        complaint({"--steps", "3", "--steps", "4"}),
        ContainsSubstring("--steps is given twice: 3 and 4")
    );
    CHECK_THAT(complaint({"-m", "a", "--model=b"}), ContainsSubstring("--model is given twice"));
    CHECK_THAT(complaint({"--portable", "--no-portable"}), ContainsSubstring("given twice"));
    CHECK(parse({"--steps", "3", "--steps", "3"}).steps == 3);
    CHECK(parse({"--data", "a", "--data", "b"}).data == std::vector<std::string>{"a", "b"});
}

TEST_CASE("numbers_outside_their_range_are_refused") {
    CHECK_THAT(
        complaint({"--share", "1.5"}),
        ContainsSubstring("--share 1.5: expected a number from 0 to 1")
    );
    CHECK_THAT(complaint({"--share", "-0.1"}), ContainsSubstring("from 0 to 1"));
    CHECK_THAT(complaint({"--rounds", "0"}), ContainsSubstring("expected a number of at least 1"));
    CHECK(parse({"--share", "1"}).share == 1.0);
}

TEST_CASE("flags_of_other_programs_are_led_to_ours") {
    CHECK_THAT(
        complaint({"-ub", "4"}), ContainsSubstring("-ub: name the micro-batch with --micro")
    );
    CHECK_THAT(
        complaint({"--last", "1e-5"}), ContainsSubstring("--last: name a ratio with --last-ratio")
    );
    Options o;
    table(o).set("last", "0.3");  // files of older versions have it
    CHECK(o.last == 0.3);
    CHECK_THAT(complaint({"--hlep"}), ContainsSubstring("did you mean --help?"));
    CHECK_THAT(complaint({"--", "x"}), !ContainsSubstring("unexpected"));
    Flags        none("tool", "takes nothing", "");
    const char * words[] = {"tool", "x"};
    CHECK_THROWS_WITH(none.parse(2, words), ContainsSubstring("unexpected argument \"x\""));
}

TEST_CASE("the_short_help_shows_some_flags_and_no_line_is_longer_than_80_columns") {
    Options o;
    Flags   flags = table(o);
    flags("many", o.model, std::string(40, 'x') + " " + std::string(40, 'y') + " more");
    flags.shown_first({"model", "steps"});
    const std::string brief = flags.help(false), all = flags.help();
    CHECK_THAT(
        brief, ContainsSubstring("--model") && ContainsSubstring("--steps") &&
                   !ContainsSubstring("--threads")
    );
    CHECK_THAT(brief, ContainsSubstring("--help all"));
    CHECK_THAT(all, ContainsSubstring("--threads") && ContainsSubstring(" more\n"));
    size_t             longest = 0;
    std::istringstream lines(all + brief);
    for (std::string line; std::getline(lines, line);) {
        longest = std::max(longest, line.size());
    }
    CHECK(longest <= 80);
}

TEST_CASE("values_are_restored_exactly_from_their_text") {
    Options a, b;
    Flags   from = table(a), to = table(b);
    a.lr       = 0.1f + 1e-8f;
    a.seed     = ~0ull;
    a.data     = {"one", "two words"};
    a.portable = true;
    for (const auto & [name, text] : from.values()) {
        to.set(name, text);
    }
    CHECK(b.lr == a.lr);
    CHECK(b.seed == a.seed);
    CHECK(b.data == a.data);
    CHECK(b.portable);
    CHECK(to.values() == from.values());
    CHECK_THROWS_AS(to.set("gone", "1"), Error);
}

TEST_CASE("older_spellings_are_accepted_and_stored_but_not_shown") {
    CHECK(parse({"--steps-per-round", "3"}).every == 3);
    CHECK(parse({"--every", "3"}).every == 3);
    Options o;
    Flags   flags = table(o);
    flags.set("every", "4");
    CHECK(o.every == 4);
    flags.set("steps-per-round", "5");
    CHECK(o.every == 5);
    const Flags::Values values = flags.values();
    CHECK(values[values.size() - 4] == std::pair<std::string, std::string>("every", "5"));
    CHECK_THAT(
        flags.help(), ContainsSubstring("--steps-per-round") && !ContainsSubstring("--every")
    );
}

TEST_CASE("a_bool_takes_an_optional_value_and_keeps_its_stored_form") {
    CHECK(parse({"--overlap"}).overlap);
    CHECK(parse({"--overlap", "1"}).overlap);
    CHECK_FALSE(parse({"--overlap", "0"}).overlap);
    CHECK_FALSE(parse({"--overlap=false"}).overlap);
    CHECK(parse({"--portable", "file"}).files == std::vector<std::string>{"file"});
    Options o;
    Flags   flags = table(o);
    flags.set("overlap", "1");
    CHECK(o.overlap);
    CHECK(flags.values().back() == std::pair<std::string, std::string>("overlap", "1"));
}

TEST_CASE("help_lists_groups_flags_and_defaults") {
    Options           o;
    const std::string help = table(o).help();
    CHECK_THAT(
        help, ContainsSubstring("usage: tool -m FILE") && ContainsSubstring("Model:") &&
                  ContainsSubstring("Run:")
    );
    CHECK_THAT(help, ContainsSubstring("-m, --model TEXT") && ContainsSubstring("[default 1000]"));
    CHECK_THAT(
        help, ContainsSubstring("cosine, linear; default cosine") && ContainsSubstring("--no-tied")
    );
    CHECK_THAT(help, ContainsSubstring("--version"));
}

TEST_CASE("run_tool_turns_errors_into_exit_codes") {
    CHECK(run_tool("t", [] { return 3; }) == 3);
    CHECK(run_tool("t", []() -> int { throw Error("broken"); }) == 1);
    CHECK(run_tool("t", []() -> int { throw UsageError("wrong"); }) == 2);
    CHECK(run_tool("t", [] { return parse({"--version"}).threads; }) == 0);
}

TEST_CASE("a_given_host_name_keeps_its_dots") {
    CHECK(own_host_name("gpu.1") == "gpu.1");
    CHECK(own_host_name("").find('.') == std::string::npos);
}
