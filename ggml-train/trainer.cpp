#include "ggml-train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gt {

Trainer::Trainer(
    StepGraph &            graph,
    Optimizer &            optimizer,
    SharedState &          shared,
    RunPeers &             peers,
    StepSource             source,
    const TrainerOptions & options
)
    : graph_(graph), optimizer_(optimizer), shared_(shared), peers_(peers),
      source_(std::move(source)), options_(options) {}

static int64_t n_labels(const Batch & batch) {
    return std::count_if(batch.labels.begin(), batch.labels.end(), [](int32_t l) {
        return l >= 0;
    });
}

// What gradients are multiplied with so that their norm is at most `clip`.
static float clip_scale(double norm, float clip) {
    return clip > 0.0f && norm > clip ? static_cast<float>(clip / (norm + 1e-6)) : 1.0f;
}

static double seconds() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

StepResult Trainer::train() {
    StepResult result = gradient();

    // rounds that closed without us: first become equal to the others again
    while (peers_.n_behind() > 0) {
        collect(result);
    }
    if (options_.steps > 0 && step_ >= options_.steps) {
        result.step = step_ - 1;  // the others have done the last step: nobody waits for ours
        return result;
    }
    // gradient in, message out, on its way
    result.step = step_;
    result.lr   = source_.lr(step_);
    Bytes message =
        optimizer_.prepare(step_, result.lr, clip_scale(result.grad_norm, options_.clip));
    result.n_sent = message.size();
    peers_.publish(step_, static_cast<uint64_t>(result.n_samples), std::move(message));
    in_flight_.push_back(step_++);

    // the one slow call: what all hosts sent, in the order in which all apply it
    if (in_flight_.size() > options_.overlap) {
        collect(result);
    }
    return result;
}

// Forward and backward; the gradients of the micro-batches add up to that of their mean.
StepResult Trainer::gradient() {
    const Batch   batch   = source_.samples(step_);
    const int64_t each    = graph_.options().B;
    const int64_t n_micro = batch.n_samples / each;
    GT_CHECK(n_micro * each == batch.n_samples, "a batch is a whole number of micro-batches");
    const double counted = static_cast<double>(n_labels(batch));
    double       loss    = 0.0;
    for (int64_t i = 0; i < n_micro; ++i) {
        loss += graph_.run(
            batch.part(i * each, (i + 1) * each), static_cast<float>(1.0 / counted), i == 0
        );
    }
    StepResult result{
        .loss = loss / counted, .n_samples = batch.n_samples, .grad_norm = source_.grad_norm()};
    if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
        throw Error(format(
            "step %llu: the loss is %g, the gradient's norm %g; start over (--fresh) with a lower "
            "--lr or a "
            "longer --warmup, or train on from what export makes of the last checkpoint",
            static_cast<unsigned long long>(step_ + 1), result.loss, result.grad_norm
        ));
    }
    return result;
}

void Trainer::collect(StepResult & result) {
    const double   from  = seconds();
    const uint64_t which = in_flight_.empty() ? step_ : in_flight_.front();
    Round          round = peers_.collect(which);
    result.waited += seconds() - from;
    finish(std::move(round), result);
}

// A round becomes new weights: the same on every host.
void Trainer::finish(Round round, StepResult & result) {
    if (!round.has_mine) {
        optimizer_.take_back(round.mine);  // too late: nothing is lost
    }
    std::erase_if(in_flight_, [&](uint64_t step) {
        return step <= round.round || (!round.has_mine && step == round.mine);
    });
    if (round.drop_residual) {
        for (const StateTensor & tensor : optimizer_.state().tensors) {
            if (!tensor.shared) {
                std::fill(tensor.values.begin(), tensor.values.end(), 0.0f);
            }
        }
    }
    if (round.fault != Fault::none) {
        join({}, false);  // what is still in flight is settled by later rounds
        return;
    }
    optimizer_.apply(round);
    step_            = std::max(step_, round.round + 1);
    result.n_hosts   = std::max<int>(1, static_cast<int>(round.messages.size()));
    result.n_missing = round.n_missing;
    result.validate  = round.validate;
    for (int part : round.write_parts) {
        peers_.put_part(round.round, part, shared_.part(part, round.n_parts));
    }
    if (!round.messages.empty()) {
        peers_.report(
            {.round        = round.round,
             .state_digest = shared_.digest(),
             .loss         = result.loss,
             .waited_s     = result.waited}
        );
    }
}

void Trainer::join(std::span<const uint8_t> mark, bool fresh) {
    const Joined joined = peers_.join(mark, fresh);
    for (int i = 0; i < joined.n_parts; ++i) {
        shared_.set_part(i, joined.n_parts, joined.fetch_part(i));
    }
    step_ = joined.step;
    // told before the first message, so that another model is noticed in the first round
    peers_.report({.round = step_ - 1, .state_digest = shared_.digest()});
    for (int part : joined.write_parts) {
        peers_.put_part(step_ - 1, part, shared_.part(part, joined.n_write_parts));
    }
}

void Trainer::drain() {
    StepResult result;
    while (!in_flight_.empty()) {
        collect(result);
    }
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
