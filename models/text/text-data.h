// models/text/text-data.h — Data over a token file: windows of T tokens, labels one token further.
#pragma once

#include "ggml-train/data.h"
#include "models/text/token-data.h"
#include "models/text/tokenizer.h"

namespace gt {

struct TextDataOptions {
    uint64_t    seed = 1;
    std::string host;       // its name decides which samples it gets
    int64_t     T     = 0;  // tokens per sample
    int64_t     n_val = 0;  // windows per validation, at most
};

class TextData : public Data {
public:
    // REQUIRES: tokens and tokenizer outlive it.
    TextData(const TokenData & tokens, const Tokenizer & tokenizer, const TextDataOptions & options)
        : tokens_(tokens), tokenizer_(tokenizer), options_(options) {}

    Batch    train(uint64_t step, int64_t n) override;
    Score    validate(Evaluator & evaluator, bool last) override;
    uint64_t digest() const override { return tokens_.info().digest; }

private:
    std::vector<Batch> validation(int64_t B) const;

    const TokenData & tokens_;
    const Tokenizer & tokenizer_;
    TextDataOptions   options_;
};

}  // namespace gt
