// models/text/measures.h — losses in units that models with different tokenizers can be compared by.
#pragma once

#include "ggml-train/batch.h"
#include "models/text/tokenizer.h"

#include <cmath>

namespace gt {

// A sum of losses over text. Special tokens have a loss, but no bytes.
struct TextLoss {
    double  loss     = 0.0;  // natural logarithms, summed
    int64_t n_tokens = 0, n_bytes = 0;

    double mean() const { return loss / static_cast<double>(n_tokens); }
    double perplexity() const { return std::exp(mean()); }
    double bits_per_byte() const { return loss / std::log(2.0) / static_cast<double>(n_bytes); }
};

// Of the labels that count in these batches, whose mean loss is given.
inline TextLoss
text_loss(double mean, const std::vector<Batch> & batches, const Tokenizer & tokenizer) {
    TextLoss sum;
    for (const Batch & batch : batches) {
        for (const int32_t label : batch.labels) {
            sum.n_tokens += label >= 0;
            sum.n_bytes += label >= 0 ? tokenizer.n_bytes(label) : 0;
        }
    }
    sum.loss = mean * static_cast<double>(sum.n_tokens);
    return sum;
}

}  // namespace gt
