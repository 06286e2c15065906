#include "models/init.h"
#include "models/model-file.h"
#include "models/presets.h"
#include "models/text/train-vocab.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <algorithm>
#include <llama.h>
#include <unicode.h>

using namespace gt;

// Words in Zipf's proportions, with punctuation, digits, other scripts and lines.
static std::string some_text(size_t n_bytes, uint64_t seed) {
    static const std::vector<std::string> syllables = {"the", "ing", "ka", "lo", "mer", "ön", "стр",
                                                       "на",  "日",  "本", "s",  "ed",  "qu", "a"};
    static const std::vector<std::string> ends = {" ", " ", " ", ", ", ". ", "\n", "'s ", " 17 "};
    std::string                           text;
    for (uint64_t i = 0; text.size() < n_bytes; ++i) {
        const float    u    = random_uniform(random_bits(seed, i));
        const uint64_t word = static_cast<uint64_t>(3000.0f * u * u * u);
        for (uint64_t j = 0; j <= word % 3; ++j) {
            text += syllables[random_bits(7, word, j) % syllables.size()];
        }
        text += ends[random_bits(seed, i, 1) % ends.size()];
    }
    return text;
}

// Every code point that UTF-8 can encode may occur.
static std::string random_unicode(size_t n_bytes, uint64_t seed) {
    std::string text;
    for (uint64_t i = 0; text.size() < n_bytes; ++i) {
        static const uint32_t limits[] = {0x80, 0x800, 0x3000, 0x10000, 0x110000};
        const uint32_t        point =
            static_cast<uint32_t>(random_bits(seed, i)) % limits[random_bits(seed, i, 1) % 5];
        if (point < 0xd800 || point > 0xdfff) {
            text += unicode_cpt_to_utf8(point);
        }
    }
    return text;
}

// The text-book loops, which the tokens and merges are compared with.
static std::vector<Merge> slow_merges(const WordCounts & counts, size_t n) {
    std::vector<std::pair<std::vector<int32_t>, int64_t>> words;
    for (const auto & [text, count] : counts) {
        words.emplace_back(std::vector<int32_t>(), count);
        for (const char c : text) {
            words.back().first.push_back(static_cast<uint8_t>(c));
        }
    }
    std::vector<Merge> merges;
    while (merges.size() < n) {
        std::map<Merge, int64_t> pairs;
        for (const auto & [tokens, count] : words) {
            for (size_t i = 0; i + 1 < tokens.size(); ++i) {
                pairs[{tokens[i], tokens[i + 1]}] += count;
            }
        }
        const auto best =
            std::max_element(pairs.begin(), pairs.end(), [](const auto & a, const auto & b) {
                return a.second < b.second;  // the first of equal ones
            });
        merges.push_back(best->first);
        for (auto & [tokens, count] : words) {
            for (size_t i = 0; i + 1 < tokens.size(); ++i) {
                if (Merge{tokens[i], tokens[i + 1]} == best->first) {
                    tokens[i] = 255 + static_cast<int32_t>(merges.size());
                    tokens.erase(tokens.begin() + static_cast<long>(i) + 1);
                }
            }
        }
    }
    return merges;
}

static std::vector<int32_t>
slow_tokens(const std::string & text, const std::vector<Merge> & merges) {
    std::vector<int32_t> all;
    for (const std::string & word : split_words(text)) {
        std::vector<int32_t> tokens;
        for (const char c : word) {
            tokens.push_back(static_cast<uint8_t>(c));
        }
        for (size_t rank = 0; rank < merges.size() && tokens.size() > 1; ++rank) {
            for (size_t i = 0; i + 1 < tokens.size(); ++i) {
                if (Merge{tokens[i], tokens[i + 1]} == merges[rank]) {
                    tokens[i] = 256 + static_cast<int32_t>(rank);
                    tokens.erase(tokens.begin() + static_cast<long>(i) + 1);
                }
            }
        }
        all.insert(all.end(), tokens.begin(), tokens.end());
    }
    return all;
}

TEST_CASE("merges_are_those_of_counting_again_after_each_one") {
    WordCounts words;
    count_words(some_text(20'000, 1) + "aaaa aaa aaaaaaa ababab", words);
    const MergeResult result = train_merges(words, 200);
    CHECK(result.merges == slow_merges(words, 200));
    CHECK(result.n_tokens < result.n_bytes);

    // a text without a pair that occurs twice
    CHECK(train_merges({{"ab", 1}, {"cd", 1}}, 5).merges.empty());
    CHECK(train_merges({{"ab", 2}, {"cd", 1}}, 5).merges == std::vector<Merge>{{'a', 'b'}});
    // equal counts: the lower tokens first
    CHECK(
        train_merges({{"xy", 3}, {"ab", 3}}, 2).merges == std::vector<Merge>{{'a', 'b'}, {'x', 'y'}}
    );
}

TEST_CASE("llama_cpp_loads_a_trained_vocabulary_and_gives_its_tokens") {
    // through a model file, as llama.cpp loads it
    const Scratch     dir;
    const std::string sample = some_text(60'000, 2);
    WordCounts        words;
    count_words(sample, words);
    const std::vector<Merge> merges = train_merges(words, 700).merges;
    REQUIRE(merges.size() == 700);
    ModelConfig config = find_preset("llama-tiny").config;
    config.n_layer     = 1;
    config.n_vocab     = 957;
    ModelFile model    = empty_model(config);
    model.keys         = bpe_vocabulary(merges);
    init_model(model, 1);
    save_model(dir / "m.gguf", model);
    quiet_llama();
    llama_model * llama =
        llama_model_load_from_file((dir / "m.gguf").c_str(), llama_model_default_params());
    INFO(last_llama_error());
    REQUIRE(llama != nullptr);
    const llama_vocab * vocab = llama_model_get_vocab(llama);
    CHECK(llama_vocab_n_tokens(vocab) == 957);
    CHECK(llama_vocab_eos(vocab) == 956);
    CHECK(llama_vocab_is_eog(vocab, 956));
    CHECK_FALSE(llama_vocab_get_add_bos(vocab));

    const Tokenizer ours(model.keys.get(), "trained");
    for (const std::string & text :
         {sample.substr(0, 5000), std::string("hello . there ' s  !\r\n\r\n\t x"),
          std::string("größer → 日本語 🙂"), std::string("<|endoftext|> is text"),
          std::string("\0 nul \x7f", 8), std::string(" "),
          std::string("aaaaaaaaaaaaaaaaaaaaaaaa 1234567 '''LL 'S"), random_unicode(3000, 3)}) {
        std::vector<int32_t> theirs(text.size() + 8);
        theirs.resize(llama_tokenize(
            vocab, text.data(), static_cast<int32_t>(text.size()), theirs.data(),
            static_cast<int32_t>(theirs.size()), true, false
        ));
        CHECK(theirs == slow_tokens(text, merges));
        CHECK(theirs == ours.encode(text));
        CHECK(ours.decode(theirs) == text);
    }
    llama_model_free(llama);
}

TEST_CASE("a_trained_vocabulary_keeps_random_unicode_and_real_text") {
    const Scratch     dir;
    const std::string text = some_text(300'000, 4);
    write_text(dir / "books/a.txt", text.substr(0, 200'000));
    write_text(dir / "books/b.txt", text.substr(200'000));
    const TrainedVocabulary trained = train_vocabulary({dir / "books"}, 1024);
    const Tokenizer         tokenizer(trained.keys.get(), "trained");
    CHECK(tokenizer.n_tokens() == 1024);
    CHECK(tokenizer.eos() == 1023);
    const std::string readme = read_text(std::string(GT_SOURCE_DIR) + "/README.md");
    for (const std::string & all : {random_unicode(1'000'000, 5), text, readme}) {
        const std::vector<int32_t> tokens = tokenizer.encode(all);
        CHECK(tokenizer.decode(tokens) == all);
        CHECK(std::find(tokens.begin(), tokens.end(), 1023) == tokens.end());
    }
    CHECK(
        static_cast<double>(tokenizer.encode(text).size()) < 0.5 * static_cast<double>(text.size())
    );
}

TEST_CASE("too_little_text_for_a_vocabulary_is_an_error_with_the_size_that_fits") {
    const Scratch dir;
    write_text(dir / "a.txt", "ab ab ab");
    CHECK_THAT(
        error_of([&] { train_vocabulary({dir / "a.txt"}, 4096); }),
        ContainsSubstring("--vocab-size 4096") && ContainsSubstring("enough for 259 tokens")
    );
}
