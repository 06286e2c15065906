// models/text/train-vocab.h — trains a vocabulary on text: byte-level BPE, as GPT-2's, for llama.cpp.
//
// Text is split into words by libllama's own code, with the regular expression of its "qwen2"
// vocabularies: a word keeps the space before it, digits are words of their own, and decoded text is
// exactly the text encoded (for "gpt-2" libllama removes spaces before punctuation). Then the most
// frequent pair of neighbouring tokens becomes a token, again and again. Equal counts: the pair with
// the lower token ids. The result depends on the text alone.
#pragma once

#include "models/text/tokenizer.h"

#include <map>

namespace gt {

// A token made of two earlier ones. Tokens 0 to 255 are the bytes; merge i makes token 256 + i.
using Merge = std::pair<int32_t, int32_t>;

using WordCounts = std::map<std::string, int64_t>;

// The words of a text, in order.
std::vector<std::string> split_words(const std::string & text);

// Adds the words of a text. A very long one is counted in pieces.
void count_words(const std::string & text, WordCounts & words);

struct MergeResult {
    std::vector<Merge> merges;  // fewer than asked for: no other pair occurs twice
    int64_t            n_bytes = 0, n_tokens = 0;  // of all words
};
MergeResult train_merges(const WordCounts & words, int64_t n_merges);

// tokenizer.* keys: bytes, merged tokens, and last a token that ends a document.
gguf_context_ptr bpe_vocabulary(const std::vector<Merge> & merges);

struct TrainedVocabulary {
    gguf_context_ptr keys;
    int64_t          n_bytes = 0, n_tokens = 0;  // of the text that was read
};

// From text files and folders (text-source.h). Of more than 64 MB, parts from all over the text are read.
// Throws an Error if the text is too small for n_tokens.
TrainedVocabulary train_vocabulary(const std::vector<std::string> & inputs, int64_t n_tokens);

}  // namespace gt
