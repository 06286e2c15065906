// models/tokenizer.h — text to tokens and back: a thin layer over libllama's tokenizers, so that a
// trained model is fed by llama.cpp with the very tokens it has learnt.
//
// The vocabulary is the `tokenizer.*` keys of a GGUF: of any model, of one of llama.cpp's vocabulary
// files (found by name), or ours for bytes: token i is byte i, token 256 ends a text. llama.cpp
// knows the latter as an "rwkv" vocabulary, its one kind that takes bytes as they are: "gpt2"
// replaces what is not UTF-8, "llama" treats spaces apart.
#pragma once

#include "ggml-cpp.h"
#include "ggml-train/base.h"

#include <string_view>

struct llama_model;
struct llama_vocab;

namespace gt {

// Thread-safe once made.
class Tokenizer {
public:
    // From tokenizer.* keys; `where` (the file) begins the Error if they cannot be used.
    Tokenizer(const gguf_context * keys, const std::string & where);
    ~Tokenizer();
    Tokenizer(const Tokenizer &)             = delete;
    Tokenizer & operator=(const Tokenizer &) = delete;

    int64_t  n_tokens() const { return n_tokens_; }
    int32_t  bos() const { return bos_; }          // -1: none
    int32_t  eos() const { return eos_; }          // -1: none
    bool     add_bos() const { return add_bos_; }  // llama.cpp begins every prompt with bos
    bool     is_bytes() const { return is_bytes_; }
    uint64_t digest() const { return digest_; }  // as tokenizer_digest of the keys

    // Text of any bytes; names of special tokens in it are just text.
    std::vector<int32_t> encode(std::string_view text) const;

    // As encode, for a later part of a longer text: without the space that some vocabularies put
    // before the first word. REQUIRES: the part before ended with a newline.
    std::vector<int32_t> encode_next(std::string_view text) const;

    std::string decode(std::span<const int32_t> tokens) const;

private:
    const llama_vocab *                                   vocab_ = nullptr;
    std::unique_ptr<llama_model, void (*)(llama_model *)> model_;
    int64_t                                               n_tokens_ = 0;
    int32_t                                               bos_ = -1, eos_ = -1;
    bool                                                  add_bos_ = false, is_bytes_ = false;
    uint64_t                                              digest_ = 0;
    std::vector<int32_t>                                  newline_;  // what "\n" alone becomes
};

// Keys of the byte vocabulary.
gguf_context_ptr byte_vocabulary();

// tokenizer.* keys by "bytes", by the name of one of llama.cpp's files ("gpt-2"), or by the path of
// any GGUF. An Error lists the names there are.
gguf_context_ptr find_vocabulary(const std::string & name);

// Names that find_vocabulary knows, "bytes" first.
std::vector<std::string> vocabulary_names();

// Stops libllama and ggml from printing. What they last complained about can be asked for.
void        quiet_llama();
std::string last_llama_error();

}  // namespace gt
