// models/text/tokenizer.h — text to tokens and back: a thin layer over libllama's tokenizers, so that
// training and llama.cpp see the same tokens.
//
// A vocabulary is the `tokenizer.*` keys of a GGUF: of any model, of one of llama.cpp's vocabulary
// files (found by name), or our byte vocabulary: token i is byte i, token 256 ends a document. The
// latter is an "rwkv" vocabulary, the only kind in llama.cpp that keeps all bytes: its GPT-2 kind
// replaces invalid UTF-8, its Llama kind rewrites spaces.
#pragma once

#include "ggml-cpp.h"
#include "ggml-train/base/base.h"

#include <string_view>

struct llama_model;
struct llama_vocab;

namespace gt {

// Thread-safe after construction.
class Tokenizer {
public:
    // From tokenizer.* keys. Throws an Error that begins with `where`, the file, if they are invalid.
    Tokenizer(const gguf_context * keys, const std::string & where);
    ~Tokenizer();
    Tokenizer(const Tokenizer &)             = delete;
    Tokenizer & operator=(const Tokenizer &) = delete;

    int64_t  n_tokens() const { return n_tokens_; }
    int32_t  bos() const { return bos_; }          // -1: none
    int32_t  eos() const { return eos_; }          // -1: none
    bool     add_bos() const { return add_bos_; }  // llama.cpp prepends bos to prompts
    uint64_t digest() const { return digest_; }    // tokenizer_digest() of the keys

    // Any bytes; names of special tokens are plain text.
    std::vector<int32_t> encode(std::string_view text) const;

    // Encodes a later part of a longer text: without the space that some vocabularies prepend.
    // REQUIRES: the previous part ended with a newline.
    std::vector<int32_t> encode_next(std::string_view text) const;

    // Names of special tokens become these tokens, as in a prompt that llama.cpp makes of a chat.
    std::vector<int32_t> encode_special(std::string_view text) const;

    std::string decode(std::span<const int32_t> tokens) const;

    // The bytes of one token, as llama.cpp writes them; of a special token, its name. That of the byte
    // vocabulary has none.
    std::string piece(int32_t token) const;

    // The same, but every special token has its name in the vocabulary, which encode_special knows.
    std::string name(int32_t token) const;

    // Bytes of text that the token represents; none for a special token.
    int64_t n_bytes(int32_t token) const;

    // Whether llama.cpp stops at this token: the end of a turn or of the text.
    bool ends_turn(int32_t token) const;

private:
    std::vector<int32_t> tokenize(std::string_view text, bool special) const;

    const llama_vocab *                                   vocab_ = nullptr;
    std::unique_ptr<llama_model, void (*)(llama_model *)> model_;
    int64_t                                               n_tokens_ = 0;
    int32_t                                               bos_ = -1, eos_ = -1;
    bool                                                  add_bos_ = false, is_bytes_ = false;
    uint64_t                                              digest_ = 0;
    std::vector<int32_t>                                  newline_;  // tokens of "\n"
};

// Keys of the byte vocabulary.
gguf_context_ptr byte_vocabulary();

// tokenizer.* keys of "bytes", of one of llama.cpp's vocabularies by name ("gpt-2"), or of any GGUF by
// path. Throws an Error that lists the known names.
gguf_context_ptr find_vocabulary(const std::string & name);

// Names that find_vocabulary knows, "bytes" first.
std::vector<std::string> vocabulary_names();

// Stops libllama and ggml from printing; last_llama_error returns their last error message.
void        quiet_llama();
std::string last_llama_error();

}  // namespace gt
