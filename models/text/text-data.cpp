#include "models/text/text-data.h"

#include "ggml-train/evaluator.h"
#include "models/text/measures.h"

#include <algorithm>

namespace gt {

Batch TextData::train(uint64_t step, int64_t n) {
    Batch batch = tokens_.train(options_.seed, step, options_.host, 0, n, options_.T);
    batch.add_dropout_keys(options_.seed, step, options_.host);
    return batch;
}

Score TextData::validate(Evaluator & evaluator, bool) {
    const std::vector<Batch> batches = validation(evaluator.graph().options().B);
    if (batches.empty()) {
        return {};
    }
    const double loss = evaluator.mean_loss(batches);
    return {.loss = loss, .bits_per_byte = text_loss(loss, batches, tokenizer_).bits_per_byte()};
}

// The validation windows in batches of B; the last batch is padded with ignored labels.
std::vector<Batch> TextData::validation(int64_t B) const {
    std::vector<Batch> batches;
    const int64_t      n = tokens_.n_val_windows(options_.T, options_.n_val);
    for (int64_t i = 0; i < n; i += B) {
        batches.push_back(tokens_.val(i, std::min(i + B, n), options_.T, n));
    }
    if (n % B != 0) {
        Batch & last   = batches.back();
        last.n_samples = B;
        last.tokens.resize(B * options_.T, 0);
        last.labels.resize(B * options_.T, -1);
    }
    return batches;
}

}  // namespace gt
