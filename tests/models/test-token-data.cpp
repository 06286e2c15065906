#include "models/text/token-data.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <set>

using namespace gt;

// n training tokens 0, 1, 2, ... and n_val validation tokens 10000, 10001, ...
static void make(const std::string & path, int n, int n_val, uint64_t n_vocab = 20000) {
    TokenWriter          writer(path, 42, n_vocab);
    std::vector<int32_t> tokens;
    for (int i = 0; i < n; ++i) {
        tokens.push_back(i);
    }
    writer.add(std::span(tokens).first(n / 2), false, false);
    std::vector<int32_t> val;
    for (int i = 0; i < n_val; ++i) {
        val.push_back(10000 + i);
    }
    writer.add(val, true, true);
    writer.add(std::span(tokens).subspan(n / 2), false, true);
    writer.commit(0.0);
}

TEST_CASE("token_files_round_trip_in_both_widths") {
    for (const uint64_t n_vocab : {20000ull, 70000ull}) {
        const Scratch dir;
        make(dir / "x.tokens", 1000, 100, n_vocab);
        const TokenData data(dir / "x.tokens");
        CHECK(data.info().n_train == 1000);
        CHECK(data.info().n_val == 100);
        CHECK(data.info().n_train_doc == 1);
        CHECK(data.info().n_vocab == n_vocab);
        CHECK(data.info().tokenizer == 42);
        CHECK(data.token(0) == 0);
        CHECK(data.token(999) == 999);
        CHECK(data.token(1000) == 10000);
        CHECK(data.token(1099) == 10099);
    }
}

TEST_CASE("a_sample_depends_on_seed_step_host_and_index_only") {
    const Scratch dir;
    make(dir / "x.tokens", 5000, 100);
    const TokenData data(dir / "x.tokens");
    const Batch     all = data.train(1, 7, "home", 0, 8, 32);
    REQUIRE(all.n_samples == 8);
    REQUIRE(all.tokens.size() == 8 * 32);
    for (size_t i = 0; i < all.tokens.size(); ++i) {
        REQUIRE(all.labels[i] == all.tokens[i] + 1);
        REQUIRE(all.labels[i] < 5000);
    }
    // two ranks together get the samples of one
    Batch       left  = data.train(1, 7, "home", 0, 3, 32);
    const Batch right = data.train(1, 7, "home", 3, 8, 32);
    left.tokens.insert(left.tokens.end(), right.tokens.begin(), right.tokens.end());
    CHECK(left.tokens == all.tokens);
    CHECK(data.train(2, 7, "home", 0, 8, 32).tokens != all.tokens);
    CHECK(data.train(1, 8, "home", 0, 8, 32).tokens != all.tokens);
    CHECK(data.train(1, 7, "away", 0, 8, 32).tokens != all.tokens);
}

TEST_CASE("samples_reach_every_token_and_no_validation_token") {
    const Scratch dir;
    make(dir / "x.tokens", 40, 100);
    const TokenData   data(dir / "x.tokens");
    std::set<int32_t> seen;
    for (uint64_t step = 0; step < 500; ++step) {
        const Batch batch = data.train(3, step, "a", 0, 1, 8);
        seen.insert(batch.tokens.begin(), batch.tokens.end());
        seen.insert(batch.labels.begin(), batch.labels.end());
    }
    CHECK(seen.size() == 40);
    CHECK(*seen.rbegin() == 39);
}

TEST_CASE("validation_windows_are_fixed_and_spread") {
    const Scratch dir;
    make(dir / "x.tokens", 100, 1001);
    const TokenData data(dir / "x.tokens");
    CHECK(data.n_val_windows(10, 1000) == 100);
    CHECK(data.n_val_windows(10, 7) == 7);
    const Batch all = data.val(0, 100, 10, 1000);
    CHECK(all.tokens.front() == 10000);
    CHECK(all.labels.back() == 11000);
    const Batch few = data.val(0, 4, 10, 4);
    CHECK(few.tokens[0] == 10000);
    CHECK(few.tokens[10] == 10250);
    CHECK(data.n_val_windows(2000, 7) == 0);
}

TEST_CASE("validation_takes_the_end_if_documents_are_too_few") {
    const Scratch        dir;
    TokenWriter          writer(dir / "x.tokens", 1, 300);
    std::vector<int32_t> tokens(1000, 5);
    writer.add(tokens, false, true);
    const TokenInfo info = writer.commit(0.05);
    CHECK(info.n_val == 50);
    CHECK(info.n_train == 950);
    CHECK(TokenData(dir / "x.tokens").info().n_train == 950);
}

TEST_CASE("damaged_token_files_are_refused_with_a_reason") {
    const Scratch dir;
    make(dir / "x.tokens", 1000, 100);
    const std::string whole = read_text(dir / "x.tokens");
    const auto        why   = [&](const std::string & text) {
        write_text(dir / "y.tokens", text);
        return error_of([&] { TokenData data(dir / "y.tokens"); });
    };
    CHECK(why(whole).empty());
    CHECK_THAT(why("Once upon a time"), ContainsSubstring("not a token file"));
    CHECK_THAT(why(""), ContainsSubstring("not a token file"));
    CHECK_THAT(why(whole.substr(0, 100)), ContainsSubstring("cut off"));
    CHECK_THAT(why(whole.substr(0, whole.size() - 1)), ContainsSubstring("cut off or half-copied"));
    CHECK_THAT(why(whole + "x"), ContainsSubstring("were written"));
    for (size_t i = 8; i < 80; ++i) {
        std::string text = whole;
        text[i] ^= 4;
        CHECK_FALSE(why(text).empty());
    }
    std::string text = whole;
    text[500] ^= 1;
    CHECK_THAT(why(text), ContainsSubstring("checksum"));
    CHECK_THAT(error_of([&] { TokenData data(dir / "none"); }), ContainsSubstring("No such file"));

    const TokenData data(dir / "x.tokens");
    CHECK_NOTHROW(data.check(999, 42));
    CHECK_THAT(error_of([&] { data.check(1000, 42); }), ContainsSubstring("smaller --context"));
    CHECK_THAT(error_of([&] { data.check(10, 43); }), ContainsSubstring("another tokenizer"));
}
