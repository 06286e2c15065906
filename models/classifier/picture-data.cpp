#include "models/classifier/picture-data.h"

#include "ggml-train/evaluator.h"

namespace gt {

Batch PictureData::train(uint64_t step, int64_t n) {
    if (!train_) {
        const LoaderOptions options{
            .seed      = options_.seed,
            .host      = options_.host,
            .batch     = static_cast<int>(options_.batch),
            .augment   = options_.augment,
            .n_threads = options_.n_threads};
        train_ = std::make_unique<ImageLoader>(images_, options, step);
    }
    Batch batch = to_batch(train_->at(step, static_cast<int>(n)));
    if (options_.depth > 0.0f) {
        batch.depth = depth_factors(
            options_.depth, options_.seed, step, options_.host, n, options_.n_branches
        );
    }
    return batch;
}

Score PictureData::validate(Evaluator & evaluator, bool last) {
    if (images_.val().empty()) {
        return {};
    }
    const int64_t B = evaluator.graph().options().B;
    if (!val_) {
        const LoaderOptions options{
            .batch     = static_cast<int>(B),
            .val       = true,
            .augment   = {},
            .n_threads = options_.n_threads};
        val_ = std::make_unique<ImageLoader>(images_, options);
    }
    const int64_t n_batches = last ? 0 : (options_.n_val + B - 1) / B;  // 0: all
    Evaluation    result    = evaluate_pictures(evaluator.graph(), *val_, n_batches);
    const Score   score{result.loss, result.accuracy};
    if (last) {
        last_ = std::move(result);
    }
    return score;
}

double PictureData::seconds_waited() const {
    return train_ ? std::chrono::duration<double>(train_->waited()).count() : 0.0;
}

}  // namespace gt
