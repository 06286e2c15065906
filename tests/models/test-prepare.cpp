#include "models/text/prepare.h"
#include "models/text/text-source.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <algorithm>
#include <cstdlib>
#include <zlib.h>

using namespace gt;

static void write_gz(const std::string & path, const std::string & text) {
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
}

static std::string lines(int n, const std::string & word) {
    std::string text;
    for (int i = 0; i < n; ++i) {
        text += word + " number " + std::to_string(i) + ".\n";
    }
    return text;
}

// All documents of the files, with their parts joined.
static std::vector<std::string>
documents(const std::vector<std::string> & paths, double tail = 0.0) {
    TextReader               reader(list_text_files(paths), "text", tail);
    std::vector<std::string> all;
    TextPart                 part;
    bool                     open = false;
    while (reader.next(part)) {
        CHECK(part.begins == !open);
        CHECK(part.text.size() <= 1 << 20);
        if (part.begins) {
            all.emplace_back();
        }
        all.back() += part.text;
        open = !part.ends;
    }
    CHECK_FALSE(open);
    return all;
}

TEST_CASE("documents_are_read_from_text_jsonl_gzip_and_folders") {
    const Scratch     dir;
    const std::string big = lines(150000, "line");  // several parts
    write_text(dir / "d/b.txt", big);
    write_text(dir / "d/a.md", "first");
    write_text(dir / "d/.hidden", "no");
    write_text(dir / "d/sub/picture.png", std::string("\x89PNG\0\0", 6));
    write_text(
        dir / "d/c.jsonl", "{\"text\":\"one\\nA\",\"n\":1}\n\n{\"text\":\"\\u00e9t\\u00e9\"}"
    );
    write_gz(dir / "d/sub/z.jsonl.gz", "{\"text\":\"three\"}\n");
    write_gz(dir / "d/z.txt.gz", big);
    write_gz(dir / "d/b.txt.gz", big);  // the same text as b.txt
    int        n_skipped = 0;
    const auto files     = list_text_files({dir / "d"}, &n_skipped);
    CHECK(files.size() == 5);
    CHECK(n_skipped == 3);
    CHECK(
        documents({dir / "d"}) ==
        std::vector<std::string>{"first", big, "one\nA", "été", "three", big}
    );
    CHECK(documents({dir / "d/b.txt", dir / "d/a.md"}) == std::vector<std::string>{big, "first"});
}

TEST_CASE("parts_of_long_lines_and_fields_join_to_the_whole") {
    const Scratch dir;
    std::string   one(3000000, 'x');
    for (size_t i = 0; i < one.size(); i += 3) {
        one.replace(i, 3, "日");
    }
    write_text(dir / "one.txt", one);
    write_text(dir / "one.jsonl", "{\"text\":\"" + one + "\"}\n{\"text\":\"b\"}\n");
    CHECK(documents({dir / "one.txt"}) == std::vector<std::string>{one});
    CHECK(documents({dir / "one.jsonl"}) == std::vector<std::string>{one, "b"});
    TextReader reader(list_text_files({dir / "one.txt"}), "text", 0.0);
    TextPart   part;
    REQUIRE(reader.next(part));
    CHECK((part.text.back() & 0xc0) == 0x80);  // ends with a whole character
    CHECK(part.text.size() % 3 == 0);
}

TEST_CASE("the_tail_of_a_file_is_a_separate_document") {
    const Scratch     dir;
    const std::string text = lines(100000, "line");
    write_text(dir / "a.txt", text);
    const auto parts = documents({dir / "a.txt"}, 0.1);
    REQUIRE(parts.size() == 2);
    CHECK(parts[0] + parts[1] == text);
    CHECK(parts[0].back() == '\n');
    CHECK(static_cast<double>(parts[1].size()) == Approx(0.1 * text.size()).epsilon(0.01));
}

TEST_CASE("an_error_names_file_and_line_of_unreadable_text") {
    const Scratch dir;
    write_text(dir / "a.jsonl", "{\"text\":\"x\"}\n{\"body\":\"y\",\"title\":\"z\"}\n");
    CHECK_THAT(
        error_of([&] { documents({dir / "a.jsonl"}); }),
        ContainsSubstring("a.jsonl:2") && ContainsSubstring("body, title")
    );
    write_text(dir / "b.jsonl", "{\"text\":\"x\"}\nnonsense\n");
    CHECK_THAT(error_of([&] { documents({dir / "b.jsonl"}); }), ContainsSubstring("b.jsonl:2"));
    CHECK_THAT(
        error_of([&] { documents({dir / "none.txt"}); }),
        ContainsSubstring("none.txt: No such file")
    );
    write_text(dir / "alpaca.json", "[\n{\"instruction\": \"x\", \"output\": \"y\"}\n]\n");
    CHECK_THAT(
        error_of([&] { documents({dir / "alpaca.json"}); }),
        ContainsSubstring("jq -c '.[]' ") && ContainsSubstring("alpaca.jsonl")
    );
    std::filesystem::create_directories(dir / "empty");
    CHECK_THAT(error_of([&] { documents({dir / "empty"}); }), ContainsSubstring("no text files"));
    write_gz(dir / "c.txt.gz", lines(100000, "word"));
    write_text(dir / "c.txt.gz", read_text(dir / "c.txt.gz").substr(0, 5000));
    CHECK_THAT(
        error_of([&] { documents({dir / "c.txt.gz"}); }),
        ContainsSubstring("c.txt.gz") && ContainsSubstring("cut off")
    );
}

TEST_CASE("prepared_tokens_decode_to_the_text") {
    const Scratch     dir;
    const std::string text = lines(60000, "Ein Satz");
    write_text(dir / "a.txt", text);
    write_text(dir / "b.txt", "Short.\n");
    for (const char * name : {"bytes", "gpt-2", "llama-spm"}) {
        const Tokenizer tokenizer(find_vocabulary(name).get(), name);
        PrepareOptions  options;
        options.inputs  = {dir / "a.txt", dir / "b.txt"};
        options.threads = 3;
        PrepareProgress last;
        options.progress       = [&](const PrepareProgress & p) { last = p; };
        const auto      result = prepare_tokens(tokenizer, options, dir / "x.tokens");
        const TokenData data(dir / "x.tokens");
        CHECK(result.info.n_train_doc == 2);
        CHECK(result.info.n_val_doc == 1);
        CHECK(last.n_done == last.n_total);
        CHECK(last.n_tokens == result.info.n_train + result.info.n_val);
        CHECK(data.info().tokenizer == tokenizer.digest());
        const double share =
            static_cast<double>(result.info.n_val) / static_cast<double>(last.n_tokens);
        CHECK(share == Approx(0.05).epsilon(0.05));

        std::vector<int32_t> all;
        for (uint64_t i = 0; i < last.n_tokens; ++i) {
            all.push_back(data.token(i));
        }
        CHECK(std::count(all.begin(), all.end(), tokenizer.eos()) == 3);
        if (tokenizer.add_bos()) {
            CHECK(all[0] == tokenizer.bos());
            CHECK(std::count(all.begin(), all.end(), tokenizer.bos()) == 3);
        } else {
            const std::string back = tokenizer.decode(all);
            CHECK(back.size() == text.size() + 7);
            CHECK(back.find("Short.\n") != std::string::npos);
        }
        // the number of threads changes nothing
        options.threads = 1;
        prepare_tokens(tokenizer, options, dir / "y.tokens");
        CHECK(read_text(dir / "x.tokens") == read_text(dir / "y.tokens"));
    }
}

TEST_CASE("many_documents_are_split_by_their_content") {
    const Scratch dir;
    std::string   jsonl, more;
    for (int i = 0; i < 1000; ++i) {
        jsonl += format("{\"text\":\"document %04d\"}\n", i);
    }
    write_text(dir / "a.jsonl", jsonl);
    write_text(dir / "b.jsonl", "{\"text\":\"another\"}\n" + jsonl);
    const Tokenizer tokenizer(byte_vocabulary().get(), "bytes");
    PrepareOptions  options;
    options.inputs = {dir / "a.jsonl"};
    options.val    = 0.1;
    const auto a   = prepare_tokens(tokenizer, options, dir / "a.tokens");
    options.inputs = {dir / "b.jsonl"};
    const auto b   = prepare_tokens(tokenizer, options, dir / "b.tokens");
    CHECK(a.info.n_val_doc > 70);
    CHECK(a.info.n_val_doc < 130);
    CHECK(a.info.n_train_doc + a.info.n_val_doc == 1000);
    CHECK(b.info.n_val_doc - a.info.n_val_doc <= 1);
}

TEST_CASE("the_cache_keeps_what_was_used_last_within_its_limit") {
    const Scratch dir;
    ::setenv("XDG_CACHE_HOME", (dir / "cache").c_str(), 1);
    const Tokenizer          bytes(byte_vocabulary().get(), "bytes");
    std::vector<std::string> paths;
    const auto               prepare = [&](const std::string & name, uint64_t max_bytes) {
        PrepareOptions options;
        options.inputs  = {dir / name};
        options.threads = 1;
        return cached_tokens(bytes, options, max_bytes);
    };
    for (const char * name : {"a.txt", "b.txt", "c.txt"}) {
        write_text(dir / name, std::string(2000, name[0]));
        const CachedTokens cached = prepare(name, 1 << 20);
        CHECK(cached.is_new);
        paths.push_back(cached.path);
        const auto age = std::chrono::hours(10 - static_cast<int>(paths.size()));
        std::filesystem::last_write_time(
            cached.path, std::filesystem::file_time_type::clock::now() - age
        );
    }
    CHECK_FALSE(prepare("a.txt", 1 << 20).is_new);  // now the last one used
    const uint64_t each = std::filesystem::file_size(paths[0]);
    write_text(dir / "d.txt", std::string(2000, 'd'));
    prepare("d.txt", 3 * each + each / 2);
    CHECK(std::filesystem::exists(paths[0]));
    CHECK_FALSE(std::filesystem::exists(paths[1]));
    CHECK(std::filesystem::exists(paths[2]));
}

TEST_CASE("the_cache_depends_on_text_and_tokenizer") {
    const Scratch dir;
    ::setenv("XDG_CACHE_HOME", (dir / "cache").c_str(), 1);
    write_text(dir / "a.txt", lines(100, "one"));
    const Tokenizer bytes(byte_vocabulary().get(), "bytes"),
        gpt2(find_vocabulary("gpt-2").get(), "gpt-2");
    PrepareOptions options;
    int            n_made = 0;
    options.inputs        = {dir / "a.txt"};
    options.progress      = [&](const PrepareProgress & p) { n_made += p.n_done == p.n_total; };
    const auto first      = cached_tokens(bytes, options).path;
    CHECK(cached_tokens(bytes, options).path == first);
    CHECK(n_made == 1);
    const auto other = cached_tokens(gpt2, options).path;
    CHECK(other != first);
    CHECK(n_made == 2);

    write_text(first, read_text(first).substr(0, 300));  // damaged
    CHECK(cached_tokens(bytes, options).path == first);
    CHECK(n_made == 3);

    write_text(dir / "a.txt", lines(200, "two"));
    const auto second = cached_tokens(bytes, options).path;
    CHECK(second != first);
    CHECK_FALSE(std::filesystem::exists(first));
    CHECK(std::filesystem::exists(other));

    options.inputs = {second};  // a token file is used directly
    CHECK(cached_tokens(bytes, options).path == second);
    CHECK(n_made == 4);
}

TEST_CASE("empty_text_is_an_error") {
    const Scratch   dir;
    const Tokenizer bytes(byte_vocabulary().get(), "bytes");
    PrepareOptions  options;
    write_text(dir / "a.txt", "");
    options.inputs = {dir / "a.txt"};
    CHECK_THAT(
        error_of([&] { prepare_tokens(bytes, options, dir / "x.tokens"); }),
        ContainsSubstring("contains no text")
    );
}
