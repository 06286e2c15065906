#include "models/init.h"
#include "models/model-file.h"
#include "models/presets.h"
#include "models/text/tokenizer.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <algorithm>
#include <llama.h>

using namespace gt;

// The tokens of libllama itself.
static std::vector<int32_t>
llama_tokens(const llama_vocab * vocab, const std::string & text, bool special) {
    std::vector<int32_t> tokens(text.size() + 8);
    const int            n = llama_tokenize(
                   vocab, text.data(), text.size(), tokens.data(), tokens.size(), special, special
               );
    REQUIRE(n >= 0);
    tokens.resize(n);
    return tokens;
}

static std::string random_text(size_t n, uint64_t seed) {
    std::string text(n, '\0');
    for (size_t i = 0; i < n; ++i) {
        text[i] = static_cast<char>(random_bits(seed, i));
    }
    return text;
}

TEST_CASE("byte_tokens_are_bytes_in_libllama_too") {
    // through a model file, as llama.cpp loads it
    const Scratch dir;
    for (const char * preset : {"gpt-tiny", "llama-tiny"}) {
        ModelConfig config = find_preset(preset).config;
        config.n_layer     = 1;
        config.n_vocab     = 257;
        ModelFile model    = empty_model(config);
        model.keys         = byte_vocabulary();
        init_model(model, 1);
        save_model(dir / "m.gguf", model);
        quiet_llama();
        llama_model_params params = llama_model_default_params();
        llama_model *      llama  = llama_model_load_from_file((dir / "m.gguf").c_str(), params);
        INFO(last_llama_error());
        REQUIRE(llama != nullptr);
        const llama_vocab * vocab = llama_model_get_vocab(llama);
        CHECK(llama_vocab_eos(vocab) == 256);
        CHECK(llama_vocab_is_eog(vocab, 256));
        CHECK_FALSE(llama_vocab_is_eog(vocab, 0));

        const Tokenizer ours(byte_vocabulary().get(), "bytes");
        std::string     every;
        for (int i = 0; i < 256; ++i) {
            every += static_cast<char>(i);
        }
        for (const std::string & text :
             {std::string("Hello, world.\n  two  spaces\t"),
              std::string("größer → 日本語 🙂 \xe2\x96\x81"),
              std::string("\xff\xfe \xe2 \xc3"), std::string("<|endoftext|> \\x~ \\x00 \\"), every,
              random_text(5000, 1)}) {
            const std::vector<int32_t> tokens = llama_tokens(vocab, text, false);
            CHECK(tokens == ours.encode(text));
            CHECK(tokens.size() == text.size());
            std::string back;
            for (const int32_t token : tokens) {
                char      piece[8];
                const int n = llama_token_to_piece(vocab, token, piece, sizeof piece, 0, false);
                REQUIRE(n == 1);
                back += piece[0];
            }
            CHECK(back == text);
            CHECK(ours.decode(tokens) == text);
        }
        CHECK(llama_tokens(vocab, "ab", true) == std::vector<int32_t>{'a', 'b'});  // no bos added
        llama_model_free(llama);
    }
}

TEST_CASE("vocabularies_are_found_by_name_and_by_path") {
    const auto names = vocabulary_names();
    CHECK(names[0] == "bytes");
    CHECK(std::find(names.begin(), names.end(), "gpt-2") != names.end());
    CHECK_THAT(
        error_of([] { find_vocabulary("klingon"); }),
        ContainsSubstring("gpt-2") && ContainsSubstring("bytes")
    );
    const Scratch dir;
    write_text(dir / "x.gguf", "no vocabulary");
    CHECK_THAT(error_of([&] { find_vocabulary(dir / "x.gguf"); }), ContainsSubstring("not a GGUF"));

    const auto      keys = find_vocabulary("gpt-2");
    const Tokenizer gpt2(keys.get(), "gpt-2");
    CHECK(gpt2.n_tokens() == 50257);
    CHECK(gpt2.eos() == 50256);
    CHECK_FALSE(gpt2.add_bos());
    CHECK(gpt2.digest() == tokenizer_digest(keys.get()));
    CHECK(gpt2.digest() != Tokenizer(byte_vocabulary().get(), "").digest());
    CHECK(gpt2.encode("Hello world") == std::vector<int32_t>{15496, 995});  // as tiktoken's gpt2
    CHECK(gpt2.decode(std::vector<int32_t>{15496, 995}) == "Hello world");

    const Tokenizer spm(find_vocabulary("llama-spm").get(), "llama-spm");
    CHECK(spm.add_bos());
    CHECK(spm.encode("Hello world") == std::vector<int32_t>{15043, 3186});
}

TEST_CASE("a_text_split_at_newlines_gives_the_same_tokens") {
    const std::string a = "The first line, with some (punctuation).\n", b = "And a second one:\n",
                      c = "1, 2, 3 — done.";
    for (const char * name : {"bytes", "gpt-2", "llama-spm", "llama-bpe"}) {
        const Tokenizer      tokenizer(find_vocabulary(name).get(), name);
        std::vector<int32_t> parts = tokenizer.encode(a);
        for (const std::string & next : {b, c}) {
            const auto more = tokenizer.encode_next(next);
            parts.insert(parts.end(), more.begin(), more.end());
        }
        INFO(name);
        CHECK(parts == tokenizer.encode(a + b + c));
        CHECK(tokenizer.decode(parts) == a + b + c);
    }
}

TEST_CASE("a_file_without_tokenizer_is_an_error") {
    const gguf_context_ptr none(gguf_init_empty());
    CHECK_THAT(
        error_of([&] { Tokenizer(none.get(), "x.gguf"); }),
        ContainsSubstring("x.gguf: has no tokenizer")
    );
    const auto keys = byte_vocabulary();
    gguf_set_val_str(keys.get(), "tokenizer.ggml.model", "unheard-of");
    CHECK_THAT(error_of([&] { Tokenizer(keys.get(), "x.gguf"); }), ContainsSubstring("unheard-of"));
}

TEST_CASE("one_tokenizer_serves_many_threads") {
    const Tokenizer   tokenizer(find_vocabulary("gpt-2").get(), "gpt-2");
    const std::string text  = "It was the best of times, it was the worst of times.";
    const auto        alone = tokenizer.encode(text);
    Workers           workers(4);
    workers.run([&](int, int) {
        for (int i = 0; i < 100; ++i) {
            if (tokenizer.encode(text) != alone) {
                throw Error("threads disturb each other");
            }
        }
    });
}
