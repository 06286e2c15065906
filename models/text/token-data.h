// models/text/token-data.h — token files: all training text as one array of tokens, memory-mapped.
//
// Sample i of a step is a function of (seed, step, host, i), so that a resumed run sees the samples it
// would have seen, on any number of ranks. Validation windows are fixed. prepare.h writes such files.
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

#include "ggml-train/base/file.h"
#include "ggml-train/batch.h"

namespace gt {

struct TokenInfo {
    uint64_t tokenizer   = 0;  // tokenizer_digest of the vocabulary
    uint64_t n_vocab     = 0;
    uint64_t n_train     = 0;  // tokens
    uint64_t n_val       = 0;
    uint64_t n_train_doc = 0;
    uint64_t n_val_doc   = 0;
    uint64_t digest      = 0;  // of counts and tokens
};

// Whether a document or chat with this digest is held out for validation: a fraction `val` of all are.
bool is_held_out(uint64_t digest, double val);

class TokenData {
public:
    // Opens a file. Throws an Error if it is invalid or damaged; the tokens' digest is checked for
    // files up to 4 GB.
    explicit TokenData(const std::string & path);

    const TokenInfo & info() const { return info_; }

    // Throws an Error if there are too few tokens for samples of T, or the tokenizer is not the
    // model's. name: the data's name in the Error; empty: the file.
    void check(int64_t T, uint64_t tokenizer, const std::string & name = "") const;

    // Samples [begin, end) of a host's step: T tokens each; labels are the next tokens.
    Batch train(
        uint64_t            seed,
        uint64_t            step,
        const std::string & host,
        int64_t             begin,
        int64_t             end,
        int64_t             T
    ) const;

    // Number of validation windows of T tokens, at most `most`, evenly spread; and windows [begin, end).
    int64_t n_val_windows(int64_t T, int64_t most) const;
    Batch   val(int64_t begin, int64_t end, int64_t T, int64_t most) const;

    // Training tokens first, then validation tokens.
    int32_t token(uint64_t index) const;

private:
    void cut(uint64_t offset, int64_t T, Batch & batch) const;

    std::string     path_;
    MappedFile      file_;
    TokenInfo       info_;
    uint32_t        token_bytes_ = 0;
    const uint8_t * tokens_      = nullptr;
};

// Writes a token file atomically. Training tokens are streamed to disk; validation tokens are kept in
// memory until the end.
class TokenWriter {
public:
    TokenWriter(const std::string & path, uint64_t tokenizer, uint64_t n_vocab);

    // A document or its next part; ends: this is its last part.
    void add(std::span<const int32_t> tokens, bool validation, bool ends);

    // Completes the file. If validation has less than the fraction `least` of all tokens, the last
    // training tokens are added to it.
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
