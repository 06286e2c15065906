#include "models/text/train-vocab.h"

#include "models/text/text-source.h"

#include <algorithm>
#include <queue>
#include <unicode.h>  // of libllama
#include <unordered_map>
#include <utility>

namespace gt {

constexpr size_t   kMaxWord   = 256;  // bytes; a line of Base64 would be scanned by every merge
constexpr uint64_t kMaxSample = 64 << 20;
constexpr int32_t  kBytes     = 256;

std::vector<std::string> split_words(const std::string & text) {
    // as in libllama's tokenizer for LLAMA_VOCAB_PRE_TYPE_QWEN2
    static const std::string regex =
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
        "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    return unicode_regex_split(text, {regex}, /*byte_encode*/ false);
}

void count_words(const std::string & text, WordCounts & words) {
    for (const std::string & word : split_words(text)) {
        for (size_t at = 0; at < word.size(); at += kMaxWord) {
            ++words[word.substr(at, kMaxWord)];
        }
    }
}

namespace {

// Words as tokens, with the number of every pair of neighbours and the words that have it. A merge looks
// only at the words of its pair.
class Merger {
public:
    explicit Merger(const WordCounts & counts) {
        for (const auto & [text, count] : counts) {
            Word word{.tokens = {}, .count = count};
            for (const char c : text) {
                word.tokens.push_back(static_cast<uint8_t>(c));
            }
            words_.push_back(std::move(word));
            add_pairs(words_.size() - 1, 0);
        }
        for (const auto & [pair, entry] : pairs_) {
            queue_.push({entry.count, pair});
        }
    }

    // The most frequent pair becomes `token`. False: no pair occurs twice.
    bool merge(int32_t token, Merge & merge) {
        while (!queue_.empty()) {
            const Candidate best = queue_.top();
            queue_.pop();
            const int64_t count = pairs_[best.pair].count;
            if (count < best.count) {  // merges have taken some of them
                queue_.push({count, best.pair});
                continue;
            }
            if (count < 2) {
                return false;
            }
            merge = {static_cast<int32_t>(best.pair >> 32), static_cast<int32_t>(best.pair)};
            replace(best.pair, token);
            return true;
        }
        return false;
    }

    int64_t n_tokens() const {
        int64_t n = 0;
        for (const Word & word : words_) {
            n += word.count * static_cast<int64_t>(word.tokens.size());
        }
        return n;
    }

private:
    using Pair = uint64_t;  // left token << 32 | right token; both are positive

    struct Word {
        std::vector<int32_t> tokens;
        int64_t              count;
    };
    struct Entry {
        int64_t             count = 0;
        std::vector<size_t> words;  // that have or had it, in ascending order
    };
    struct Candidate {
        int64_t count;  // when it was queued; merges only lower it
        Pair    pair;

        bool operator<(const Candidate & other) const {
            return count != other.count ? count < other.count : pair > other.pair;
        }
    };

    static Pair pair_at(const std::vector<int32_t> & tokens, size_t i) {
        return static_cast<Pair>(tokens[i]) << 32 | static_cast<Pair>(tokens[i + 1]);
    }

    // Counts the pairs of word w, and remembers w at those that have a token from `first` on.
    void add_pairs(size_t w, int32_t first) {
        const Word & word = words_[w];
        for (size_t i = 0; i + 1 < word.tokens.size(); ++i) {
            Entry & entry = pairs_[pair_at(word.tokens, i)];
            entry.count += word.count;
            if ((word.tokens[i] >= first || word.tokens[i + 1] >= first) &&
                (entry.words.empty() || entry.words.back() != w)) {
                entry.words.push_back(w);
            }
        }
    }

    void replace(Pair pair, int32_t token) {
        std::vector<Pair> made;
        for (const size_t w : std::exchange(pairs_[pair].words, {})) {
            std::vector<int32_t> & tokens = words_[w].tokens;
            for (size_t i = 0; i + 1 < tokens.size(); ++i) {
                pairs_[pair_at(tokens, i)].count -= words_[w].count;
            }
            size_t n = 0;
            for (size_t i = 0; i < tokens.size(); ++n) {
                const bool here = i + 1 < tokens.size() && pair_at(tokens, i) == pair;
                tokens[n]       = here ? token : tokens[i];
                i += here ? 2 : 1;
            }
            tokens.resize(n);
            add_pairs(w, token);
            for (size_t i = 0; i + 1 < n; ++i) {
                if (tokens[i] == token || tokens[i + 1] == token) {
                    made.push_back(pair_at(tokens, i));
                }
            }
        }
        std::sort(made.begin(), made.end());
        made.erase(std::unique(made.begin(), made.end()), made.end());
        for (const Pair added : made) {
            queue_.push({pairs_[added].count, added});
        }
    }

    std::vector<Word>               words_;
    std::unordered_map<Pair, Entry> pairs_;
    std::priority_queue<Candidate>  queue_;
};

}  // namespace

MergeResult train_merges(const WordCounts & words, int64_t n_merges) {
    MergeResult result;
    Merger      merger(words);
    result.n_bytes = merger.n_tokens();
    Merge merge;
    while (static_cast<int64_t>(result.merges.size()) < n_merges &&
           merger.merge(kBytes + static_cast<int32_t>(result.merges.size()), merge)) {
        result.merges.push_back(merge);
    }
    result.n_tokens = merger.n_tokens();
    return result;
}

gguf_context_ptr bpe_vocabulary(const std::vector<Merge> & merges) {
    std::vector<std::string> tokens, rules;
    for (int32_t i = 0; i < kBytes; ++i) {
        tokens.push_back(unicode_byte_to_utf8(static_cast<uint8_t>(i)));
    }
    for (const auto & [left, right] : merges) {
        rules.push_back(tokens[left] + " " + tokens[right]);
        tokens.push_back(tokens[left] + tokens[right]);
    }
    const auto           end = static_cast<uint32_t>(tokens.size());
    std::vector<int32_t> types(tokens.size(), 1);  // normal
    tokens.emplace_back("<|endoftext|>");
    types.push_back(3);  // control

    gguf_context_ptr keys(gguf_init_empty());
    const auto       set_strings = [&](const char * key, const std::vector<std::string> & texts) {
        std::vector<const char *> pointers;
        for (const std::string & text : texts) {
            pointers.push_back(text.c_str());
        }
        gguf_set_arr_str(keys.get(), key, pointers.data(), pointers.size());
    };
    gguf_set_val_str(keys.get(), "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(keys.get(), "tokenizer.ggml.pre", "qwen2");
    set_strings("tokenizer.ggml.tokens", tokens);
    gguf_set_arr_data(
        keys.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size()
    );
    set_strings("tokenizer.ggml.merges", rules);
    gguf_set_val_u32(keys.get(), "tokenizer.ggml.bos_token_id", end);
    gguf_set_val_u32(keys.get(), "tokenizer.ggml.eos_token_id", end);
    gguf_set_val_bool(keys.get(), "tokenizer.ggml.add_bos_token", false);
    return keys;
}

TrainedVocabulary train_vocabulary(const std::vector<std::string> & inputs, int64_t n_tokens) {
    TextReader     reader(list_text_files(inputs), "text", 0.0);
    const uint64_t every = 1 + reader.n_total() / kMaxSample;
    WordCounts     words;
    TextPart       part;
    for (uint64_t i = 0; reader.next(part); ++i) {
        if (i % every == 0) {
            count_words(part.text, words);
        }
    }
    const int64_t     n_merges = n_tokens - kBytes - 1;
    const MergeResult result   = train_merges(words, n_merges);
    const auto        n_made   = static_cast<int64_t>(result.merges.size());
    if (n_made < n_merges) {
        throw Error(format(
            "--vocab-size %lld: this text is enough for %lld tokens; give more text, or that size",
            static_cast<long long>(n_tokens), static_cast<long long>(n_tokens - n_merges + n_made)
        ));
    }
    return {bpe_vocabulary(result.merges), result.n_bytes, result.n_tokens};
}

}  // namespace gt
