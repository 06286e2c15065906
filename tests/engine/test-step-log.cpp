#include "ggml-train/run/step-log.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <algorithm>
#include <limits>
#include <regex>

using namespace gt;

namespace {

// A log with a clock and a memory of the test, which writes to a file.
struct Fixture {
    Scratch dir;
    double  time = 100.0;
    FILE *  out  = nullptr;

    Fixture() : out(std::fopen((dir / "out").c_str(), "wb")) {}
    ~Fixture() { std::fclose(out); }
    StepLogOptions options(int terminal, uint64_t steps = 100) {
        StepLogOptions o;
        o.steps    = steps;
        o.out      = out;
        o.terminal = terminal;
        o.seconds  = [this] { return time; };
        o.memory   = [] { return uint64_t(123000000); };
        return o;
    }
    void run(StepLog & log, uint64_t begin, uint64_t end) {
        for (uint64_t step = begin; step <= end; ++step) {
            time += 0.5;
            log.step(
                {.step      = step,
                 .loss      = 5.0f - step * 0.01f,
                 .lr        = 1e-3f,
                 .grad_norm = 1.0f,
                 .n_tokens  = 1000}
            );
        }
    }
    std::string text() {
        std::fflush(out);
        return read_text(dir / "out");
    }
    int lines(const std::string & name) {
        const std::string all = read_text(dir / name);
        return static_cast<int>(std::count(all.begin(), all.end(), '\n'));
    }
};

}  // namespace

TEST_CASE("time_lost_to_waiting_for_data_is_shown_when_it_matters") {
    Fixture f;
    StepLog log(f.dir.path(), 0, f.options(0));
    f.run(log, 1, 1);
    CHECK(log.line().find("for data") == std::string::npos);
    f.time += 0.5;
    log.step({.step = 2, .loss = 1.0f, .n_tokens = 1000, .waited = 0.25});
    CHECK_THAT(log.line(), ContainsSubstring("| waits 25% for data |"));
    CHECK_THAT(read_text(f.dir / "metrics.jsonl"), ContainsSubstring("\"waited_seconds\":0.25"));
}

TEST_CASE("a_round_appears_in_the_progress_line_and_in_the_metrics") {
    Fixture f;
    StepLog log(f.dir.path(), 0, f.options(0));
    f.run(log, 1, 1);
    CHECK(log.line().find("hosts") == std::string::npos);  // alone
    CHECK(read_text(f.dir / "metrics.jsonl").find("\"round\"") == std::string::npos);
    f.time += 0.5;
    log.step(
        {.step             = 2,
         .loss             = 1.0f,
         .n_tokens         = 1000,
         .n_samples        = 4,
         .round            = 1,
         .in               = {"anna", "ben"},
         .late             = {"cleo"},
         .n_sent           = 7000,
         .up_bytes         = 12'000'000,
         .down_bytes       = 24'000'000,
         .waited_for_hosts = 0.2}
    );
    CHECK_THAT(
        log.line(),
        ContainsSubstring("| waits 20% for hosts | round 1: anna, ben; late: cleo | up 12 MB, "
                          "down 24 MB |")
    );
    CHECK_THAT(
        read_text(f.dir / "metrics.jsonl"),
        ContainsSubstring("\"samples\":4,\"hosts\":2,\"missing\":1,\"sent_bytes\":7000,") &&
            ContainsSubstring("\"round\":1,\"in\":[\"anna\",\"ben\"],\"late\":[\"cleo\"],"
                              "\"up_bytes\":12000000,\"down_bytes\":24000000,"
                              "\"waited_for_hosts_seconds\":0.2}")
    );
    log.step({.step = 3, .loss = 1.0f, .in = {"a", "b", "c", "d", "e"}});
    CHECK_THAT(log.line(), ContainsSubstring(": 5 hosts | up"));
}

TEST_CASE("speed_memory_and_time_left_are_right") {
    Fixture f;
    StepLog log(f.dir.path(), 0, f.options(0));
    f.run(log, 1, 40);
    CHECK(
        log.line() == "40/100 40% | loss 4.6000 | 30s left | 2.00k tokens/s | lr 1.00e-03 | 123 MB"
    );

    // Ten seconds of evaluation count for the time left, not for the speed.
    f.time += 10.0;
    log.eval(40, 4.7f);
    f.run(log, 41, 50);
    CHECK_THAT(
        log.line(), ContainsSubstring("2.00k tokens/s") && ContainsSubstring("val 4.7000") &&
                        ContainsSubstring(" 35s left")
    );
    f.run(log, 51, 100);
    CHECK_THAT(log.line(), ContainsSubstring("100/100 100%") && !ContainsSubstring("left"));
}

TEST_CASE("a_validation_on_text_says_perplexity_and_bits_per_byte") {
    Fixture f;
    {
        StepLog log(f.dir.path(), 0, f.options(0));
        log.eval(30, 0.6931472f, -1.0f, 0.25f);
        log.eval(40, 0.5f, 0.75f);
    }
    CHECK_THAT(
        f.text(),
        ContainsSubstring("step 30: validation loss 0.6931, perplexity 2, 0.2500 bits per byte") &&
            ContainsSubstring("step 40: validation loss 0.5000, accuracy 75.0 %\n")
    );
    CHECK_THAT(
        read_text(f.dir / "metrics.jsonl"), ContainsSubstring("\"val_bits_per_byte\":0.25}")
    );
}

TEST_CASE("a_terminal_gets_the_most_valuable_fields_that_fit") {
    Fixture        f;
    size_t         width   = 200;
    StepLogOptions options = f.options(1, 1000);
    options.batch          = 160;
    options.width          = [&] { return width; };
    Progress progress(0, options);
    f.time += 0.5;
    const auto step = [&](uint64_t n) {
        progress.step(
            {.step       = n,
             .loss       = 3.5f,
             .lr         = 1e-3f,
             .n_tokens   = 1000,
             .n_samples  = 20,
             .round      = n,
             .in         = {"anna", "ben"},
             .up_bytes   = 12'000'000,
             .down_bytes = 24'000'000}
        );
    };
    progress.val_loss(3.6f);
    step(1);
    CHECK(
        progress.line() ==
        "1/1000 [>               ] 0% | loss 3.5000 | 8m20s left | 2.00k tokens/s | val 3.6000 | "
        "20 of 160 samples | waits 0% for hosts | round 1: anna, ben | up 12 MB, down 24 MB | "
        "lr 1.00e-03 | 123 MB"
    );
    CHECK(
        progress.line(79) == "1/1000 0% | loss 3.5000 | 8m20s left | 2.00k tokens/s | val 3.6000"
    );
    CHECK(progress.line(30) == "1/1000 0% | loss 3.5000");

    // a terminal that has become narrower shows the old line in three rows; all of them are erased
    width = 70;
    f.time += 0.5;
    step(2);
    CHECK_THAT(f.text(), ContainsSubstring("\033[2A\r\033[J2/1000 0% | loss 3.5000 | 8m19s left"));
}

TEST_CASE("what_takes_long_is_shown_on_a_terminal_only") {
    Fixture f;
    {
        Progress progress(0, f.options(1, 10));
        progress.working("step 1: 1/8");
        CHECK_THAT(f.text(), ContainsSubstring("0/10 [>               ] 0% | step 1: 1/8"));
        f.time += 0.1;
        progress.working("step 1: 2/8");
        CHECK_THAT(f.text(), !ContainsSubstring("2/8"));
        f.time += 0.5;
        progress.working("step 1: 3/8");
        CHECK_THAT(f.text(), ContainsSubstring("step 1: 3/8") && !ContainsSubstring("loss"));
        progress.step({.step = 1, .loss = 2.0f, .n_tokens = 1000});
    }
    CHECK_THAT(
        f.text().substr(f.text().rfind('\r')),
        ContainsSubstring("loss 2.0") && !ContainsSubstring("3/8")
    );

    Fixture  plain;
    Progress progress(0, plain.options(0, 10));
    progress.working("step 1: 1/8");
    CHECK(plain.text().empty());
}

TEST_CASE("the_progress_line_agrees_with_the_metrics_file") {
    Fixture f;
    StepLog log(f.dir.path(), 0, f.options(0));
    f.run(log, 1, 30);
    const std::string metrics = read_text(f.dir / "metrics.jsonl");
    std::regex        pattern("\"step_seconds\":([0-9.]+),\"tokens_per_second\":([0-9.]+)");
    std::smatch       match;
    const std::string last = metrics.substr(metrics.rfind("{\"step\":30,"));
    REQUIRE(std::regex_search(last, match, pattern));
    CHECK(std::stod(match[1]) == Approx(0.5));
    CHECK(std::stod(match[2]) == Approx(2000.0));
    CHECK_THAT(
        last, ContainsSubstring("\"tokens\":30000") && ContainsSubstring("\"seconds\":15.0,")
    );
    CHECK_THAT(last, ContainsSubstring("\"memory_bytes\":123000000"));
}

TEST_CASE("on_resume_lines_beyond_the_checkpoint_are_cut") {
    Fixture f;
    {
        StepLog log(f.dir.path(), 0, f.options(0));
        f.run(log, 1, 30);
        log.eval(30, 4.0f);
        f.run(log, 31, 37);
    }
    const std::string before = read_text(f.dir / "metrics.jsonl"),
                      csv    = read_text(f.dir / "metrics.csv");
    CHECK(f.lines("metrics.jsonl") == 38);
    CHECK(f.lines("metrics.csv") == 39);
    write_text(f.dir / "metrics.jsonl", before + "{\"step\":38,\"tok");  // torn by a crash
    f.time += 1000.0;                                                    // between the sessions
    {
        StepLog log(f.dir.path(), 30, f.options(0));
        CHECK(f.lines("metrics.jsonl") == 31);
        CHECK(f.lines("metrics.csv") == 32);
        f.run(log, 31, 37);
    }
    CHECK(read_text(f.dir / "metrics.jsonl") == before);
    CHECK(read_text(f.dir / "metrics.csv") == csv);
}

TEST_CASE("metrics_of_the_older_format_are_resumed") {
    Fixture f;
    write_text(
        f.dir / "metrics.jsonl",
        "{\"step\":1,\"tokens\":1000,\"seconds\":0.500,\"loss\":4.99,\"missing\":0}\n"
        "{\"step\":2,\"tokens\":2000,\"seconds\":1.000,\"loss\":null,\"missing\":0}\n"
    );
    StepLog log(f.dir.path(), 2, f.options(0));
    f.run(log, 3, 3);
    CHECK(f.lines("metrics.jsonl") == 3);
    CHECK_THAT(
        read_text(f.dir / "metrics.jsonl"),
        ContainsSubstring("{\"step\":3,\"tokens\":3000,\"seconds\":1.5,\"loss\":4.96999979,")
    );
}

TEST_CASE("a_terminal_gets_one_line_redrawn_others_plain_lines") {
    Fixture f;
    {
        StepLog log(f.dir.path(), 0, f.options(1));
        f.run(log, 1, 25);
        log.note("hello");
    }
    std::string text = f.text();
    CHECK(std::count(text.begin(), text.end(), '\n') == 2);
    CHECK_THAT(
        text, ContainsSubstring("\r\033[K25/100 25% | loss") && ContainsSubstring("\r\033[Khello\n")
    );

    Fixture e;
    {
        StepLog log(e.dir.path(), 0, e.options(1));
        e.run(log, 1, 25);
        log.end();
        log.note("trained model: x.gguf");
    }
    text = e.text();
    CHECK(text.substr(text.rfind('\r') + 1).starts_with("\033[K25/100 25% | loss"));
    CHECK(text.ends_with("\ntrained model: x.gguf\n"));

    Fixture g;
    {
        StepLog log(g.dir.path(), 0, g.options(0));
        g.run(log, 1, 25);
    }
    text = g.text();
    CHECK(std::count(text.begin(), text.end(), '\n') == 3);  // 1, 10, 20
    CHECK_THAT(text, !ContainsSubstring("\033") && !ContainsSubstring("\r"));
}

TEST_CASE("metrics_stay_valid_json_with_nan_and_samples_stay_printable") {
    Fixture f;
    {
        StepLog log(f.dir.path(), 0, f.options(0));
        log.step({.step = 1, .loss = std::numeric_limits<float>::quiet_NaN()});
        log.sample(1, "\nOnce", " upon\na \033[31mtime");
    }
    CHECK_THAT(read_text(f.dir / "metrics.jsonl"), ContainsSubstring("\"loss\":null"));
    CHECK_THAT(f.text(), ContainsSubstring("sample\n    Once upon\n    a .[31mtime\n"));
}

TEST_CASE("a_disabled_log_writes_nothing") {
    Fixture        f;
    StepLogOptions options = f.options(0);
    options.enabled        = false;
    StepLog log(f.dir.path(), 0, options);
    f.run(log, 1, 20);
    log.eval(20, 1.0f);
    log.sample(20, "a", "b");
    CHECK(f.text().empty());
    CHECK_FALSE(std::filesystem::exists(f.dir / "metrics.jsonl"));
}

TEST_CASE("resident_memory_is_known") {
    CHECK(resident_bytes() > 100000);
}
