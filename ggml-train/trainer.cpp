#include "ggml-train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gt {

Trainer::Trainer(StepGraph & graph, Optimizer & optimizer, Peers & peers, GradNorm grad_norm, const TrainerOptions & options)
    : graph_(graph), optimizer_(optimizer), peers_(peers), grad_norm_(std::move(grad_norm)), options_(options) {}

static int64_t n_labels(const Batch & batch) {
    return std::count_if(batch.labels.begin(), batch.labels.end(), [](int32_t l) { return l >= 0; });
}

// What gradients are multiplied with so that their norm is at most `clip`.
static float clip_scale(double norm, float clip) {
    return clip > 0.0f && norm > clip ? static_cast<float>(clip / (norm + 1e-6)) : 1.0f;
}

StepResult Trainer::train(const Batch & batch, float lr) {
    const int64_t each    = graph_.options().B;
    const int64_t n_micro = batch.n_samples / each;
    GT_CHECK(n_micro * each == batch.n_samples, "a batch is a whole number of micro-batches");

    // forward and backward; gradients of the micro-batches add up to that of their mean
    const double counted = static_cast<double>(n_labels(batch));
    double       loss    = 0.0;
    for (int64_t i = 0; i < n_micro; ++i) {
        loss += graph_.run(batch.part(i * each, (i + 1) * each), static_cast<float>(1.0 / counted), i == 0);
    }
    StepResult result{.step = step_, .loss = loss / counted, .grad_norm = grad_norm_(), .lr = lr};
    if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
        throw Error(format(
            "step %llu: the loss is %g, the gradient's norm %g; start again from the last checkpoint "
            "with a lower --lr, a longer --warmup or a smaller --clip",
            static_cast<unsigned long long>(step_), result.loss, result.grad_norm
        ));
    }

    // gradient in, message out, on its way
    peers_.publish(
        step_, static_cast<uint64_t>(batch.n_samples),
        optimizer_.prepare(step_, lr, clip_scale(result.grad_norm, options_.clip))
    );
    // the one slow call: what all hosts sent, in the order that all apply it
    if (step_ >= static_cast<uint64_t>(options_.overlap)) {
        const auto  from  = std::chrono::steady_clock::now();
        const Round round = peers_.collect(step_ - options_.overlap);
        result.waited     = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
        result.n_missing  = round.n_missing;
        if (!round.has_mine) {
            optimizer_.take_back(round.round);  // too late: nothing is lost
        }
        optimizer_.apply(round);
    }
    ++step_;
    return result;
}

double evaluate(StepGraph & graph, const std::vector<Batch> & batches) {
    double loss = 0.0, counted = 0.0;
    for (const Batch & batch : batches) {
        loss += graph.run(batch);
        counted += static_cast<double>(n_labels(batch));
    }
    return loss / counted;
}

}  // namespace gt
