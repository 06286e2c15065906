// ggml-train/data.h — token files: all training text as one long row of tokens, memory-mapped.
//
// Sample i of a step is a function of (seed, step, host, i) and of nothing else, so that a run goes
// on after an interruption exactly where it was, on any number of ranks. Validation windows are
// fixed. models/prepare.h makes such files from text.
//
//   bytes    content (little endian)
//   0        "GTTOKENS"
//   8        u32 version 1, u32 bytes per token (2 or 4)
//   16       u64 tokenizer digest, u64 vocabulary size
//   32       u64 training tokens, u64 validation tokens
//   48       u64 training documents, u64 validation documents
//   64       u64 StreamDigest of all tokens
//   72       u64 digest64 of bytes 0 to 72
//   80       zeros up to 128
//   128      training tokens, then validation tokens; a document ends with the end-of-text token
#pragma once

#include "ggml-train/batch.h"
#include "ggml-train/file.h"

namespace gt {

struct TokenInfo {
    uint64_t tokenizer   = 0;  // tokenizer_digest of the vocabulary
    uint64_t n_vocab     = 0;
    uint64_t n_train     = 0;  // tokens
    uint64_t n_val       = 0;
    uint64_t n_train_doc = 0;
    uint64_t n_val_doc   = 0;
    uint64_t digest      = 0;  // of everything: counts and tokens
};

class TokenData {
public:
    // Opens and checks a file; an Error says what is wrong with it. Content is checked against its
    // digest unless the file is huge (over 4 GB).
    explicit TokenData(const std::string & path);

    const TokenInfo & info() const { return info_; }

    // Throws an Error unless samples of T tokens can be cut and the tokenizer is the model's.
    // name: what the person called this data; empty: the file.
    void check(int64_t T, uint64_t tokenizer, const std::string & name = "") const;

    // Samples [begin, end) of this host's step: T tokens each, labels are the tokens one further.
    Batch train(
        uint64_t            seed,
        uint64_t            step,
        const std::string & host,
        int64_t             begin,
        int64_t             end,
        int64_t             T
    ) const;

    // Number of validation windows of T tokens, at most `most`, spread evenly; and some of them.
    int64_t n_val_windows(int64_t T, int64_t most) const;
    Batch   val(int64_t begin, int64_t end, int64_t T, int64_t most) const;

    // One token, training first.
    int32_t token(uint64_t index) const;

private:
    void cut(uint64_t offset, int64_t T, Batch & batch) const;

    std::string     path_;
    MappedFile      file_;
    TokenInfo       info_;
    uint32_t        token_bytes_ = 0;
    const uint8_t * tokens_      = nullptr;
};

// Writes such a file, aside and renamed. Training tokens stream to the disk; validation tokens are
// kept until the end.
class TokenWriter {
public:
    TokenWriter(const std::string & path, uint64_t tokenizer, uint64_t n_vocab);

    // A whole document, or the next part of one: `ends` counts it.
    void add(std::span<const int32_t> tokens, bool validation, bool ends);

    // Ends the file. Validation gets at least the share `least` of all tokens: where documents were
    // too few, the last training tokens are taken instead.
    TokenInfo commit(double least);

private:
    void pack(std::span<const int32_t> tokens, Bytes & out) const;

    AsideFile    file_;
    TokenInfo    info_;
    uint32_t     token_bytes_;
    StreamDigest digest_;
    Bytes        val_, packed_;
};

}  // namespace gt
