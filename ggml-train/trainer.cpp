#include "ggml-train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

namespace gt {

Trainer::Trainer(
    LocalGroup &           ranks,
    StepRunner &           graph,
    Shards &               shards,
    Optimizer &            optimizer,
    SharedState &          shared,
    RunPeers &             peers,
    StepSource             source,
    const TrainerOptions & options
)
    : ranks_(ranks), graph_(graph), shards_(shards), optimizer_(optimizer), shared_(shared),
      peers_(peers), source_(std::move(source)), options_(options),
      pace_(options.batch / graph.options().B) {
    GT_CHECK(
        options.batch > 0 && options.batch % graph.options().B == 0,
        "a batch is a whole number of micro-batches"
    );
}

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
    while (from_first(ranks_, [&] { return peers_.n_behind() > 0; })) {
        collect(result);
    }
    if (options_.steps > 0 && step_ >= options_.steps) {
        result.step = step_ - 1;  // the others have done the last step: nobody waits for ours
        return result;
    }
    // gradient in, message out, on its way
    result.step = step_;
    result.lr   = source_.lr(step_);
    Bytes part  = optimizer_.prepare(
         step_, result.lr, clip_scale(result.grad_norm, options_.clip) / result.loss_scale
     );
    result.n_sent = publish(std::move(part));
    in_flight_.push_back(step_++);

    // the one slow call: what all hosts sent, in the order in which all apply it
    const uint64_t travel = result.n_sent > 0 ? options_.overlap : 0;  // no round: nothing travels
    while (in_flight_.size() > travel) {
        collect(result);
    }
    return result;
}

// A micro-batch of which nothing counts: for ranks that have none while others still do.
static Batch blank(Batch batch) {
    std::fill(batch.labels.begin(), batch.labels.end(), -1);
    std::fill(batch.mix_labels.begin(), batch.mix_labels.end(), -1);
    return batch;
}

// F16 holds no small gradients: they are multiplied, as far as the large ones allow, each step anew.
StepResult Trainer::gradient() {
    const auto   batch  = from_first(ranks_, [&] {
        const int64_t n = pace_.n_micro() * graph_.options().B;
        return std::make_shared<const Batch>(source_.samples(step_, n));
    });
    const double from   = seconds();
    float        scale  = options_.loss_scale;
    StepResult   result = gradient(*batch, scale);
    while (scale > 1.0f && !std::isfinite(result.grad_norm)) {
        result = gradient(*batch, scale /= 2.0f);
    }
    const double share =
        static_cast<double>(batch->n_samples) / static_cast<double>(options_.batch);
    std::this_thread::sleep_for(
        std::chrono::duration<double>(from + share * options_.step_s - seconds())
    );
    step_seconds_ = seconds() - from;
    pace_.measured(batch->n_samples / graph_.options().B, step_seconds_);
    n_unsent_ += static_cast<uint64_t>(batch->n_samples);
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

// Forward and backward; the gradients of all ranks' micro-batches add up to that of their mean.
StepResult Trainer::gradient(const Batch & batch, float loss_scale) {
    const int64_t each    = graph_.options().B;
    const int64_t n_micro = batch.n_samples / each;
    GT_CHECK(n_micro * each == batch.n_samples, "a batch is a whole number of micro-batches");
    const int64_t n_turns = (n_micro + ranks_.size() - 1) / ranks_.size();
    const double  counted = static_cast<double>(n_labels(batch));
    double        mine    = 0.0;
    for (int64_t turn = 0; turn < n_turns; ++turn) {
        const int64_t i = ranks_.rank() * n_turns + turn;
        const Batch   micro =
            i < n_micro ? batch.part(i * each, (i + 1) * each) : blank(batch.part(0, each));
        mine += graph_.run(micro, static_cast<float>(loss_scale / counted), turn == 0);
    }
    shards_.reduce_grads();
    const std::vector<double> losses = from_all(ranks_, mine);
    const double              loss   = std::accumulate(losses.begin(), losses.end(), 0.0);
    return {
        .loss       = loss / counted,
        .n_samples  = batch.n_samples,
        .grad_norm  = source_.grad_norm() / loss_scale,
        .loss_scale = loss_scale};
}

// Rank 0 assembles the host's message and sends it on its way. Returns its size.
size_t Trainer::publish(Bytes part) {
    const std::vector<Bytes *> parts = from_all(ranks_, &part);
    const size_t               n     = from_first(ranks_, [&] {
        if (shards_.cut() && !part.empty()) {
            std::vector<Bytes> all;
            for (Bytes * one : parts) {
                all.push_back(std::move(*one));
            }
            part = source_.join(all);
        }
        const size_t n_bytes = part.size();
        peers_.publish(step_, n_unsent_, std::move(part));
        return n_bytes;
    });

    n_unsent_ = n > 0 ? 0 : n_unsent_;
    return n;
}

void Trainer::collect(StepResult & result) {
    const double   from  = seconds();
    const uint64_t which = in_flight_.empty() ? step_ : in_flight_.front();
    const auto     round =
        from_first(ranks_, [&] { return std::make_shared<const Round>(peers_.collect(which)); });
    result.waited += seconds() - from;
    finish(*round, result);
}

// A round becomes new weights: the same on every host.
void Trainer::finish(const Round & round, StepResult & result) {
    if (!round.has_mine) {
        optimizer_.take_back(round.mine);  // too late: nothing is lost
    }
    std::erase_if(in_flight_, [&](uint64_t step) {
        return step <= round.round || (!round.has_mine && step == round.mine);
    });
    if (round.drop_residual) {
        for (const StateTensor & tensor : optimizer_.state().tensors) {
            if (!tensor.shared) {
                tensor.floats().zero();
            }
        }
        on_first(ranks_, [&] { shared_.reset_derived(); });
    }
    if (round.fault != Fault::none) {
        join({}, false);
        return;
    }
    optimizer_.apply(round);
    shards_.share_weights();
    step_           = std::max(step_, round.round + 1);
    result.validate = round.validate;
    if (!round.in.empty() || !round.late.empty()) {
        result.round      = round.round;
        result.in         = round.in;
        result.late       = round.late;
        result.up_bytes   = round.up_bytes;
        result.down_bytes = round.down_bytes;
    }
    if (!round.messages.empty()) {
        const uint64_t n_steps = std::max<uint64_t>(1, round.round - applied_);
        pace_.others(round.pace_s / static_cast<double>(n_steps * (1 + options_.overlap)));
        applied_ = round.round;
    }
    on_first(ranks_, [&] {
        for (int part : round.write_parts) {
            peers_.put_part(round.round, part, shared_.part(part, round.n_parts));
        }
        if (!round.messages.empty()) {
            peers_.report(
                {.round        = round.round,
                 .state_digest = shared_.digest(),
                 .loss         = result.loss,
                 .tokens_s     = static_cast<double>(result.n_samples * graph_.options().T) /
                             (step_seconds_ + result.waited),
                 .waited_s = result.waited}
            );
        }
    });
}

void Trainer::join(std::span<const uint8_t> mark, bool fresh) {
    const auto place = from_first(ranks_, [&] {
        Joined joined = peers_.join(mark, fresh);
        for (int i = 0; i < joined.n_parts; ++i) {
            shared_.set_part(i, joined.n_parts, joined.fetch_part(i));
        }
        // told before the first message, so that another model is noticed in the first round
        peers_.report({.round = joined.step - 1, .state_digest = shared_.digest()});
        for (int part : joined.write_parts) {
            peers_.put_part(joined.step - 1, part, shared_.part(part, joined.n_write_parts));
        }
        return std::make_shared<const Joined>(std::move(joined));
    });
    // our own state may be steps ahead of the last round
    step_    = place->n_parts > 0 ? place->step : std::max(step_, place->step);
    applied_ = place->step - 1;
    in_flight_.assign(place->in_flight.begin(), place->in_flight.end());
    shards_.share_weights();
}

void Trainer::drain(StepResult & result) {
    while (!in_flight_.empty()) {
        collect(result);
    }
    // what a host did since its last message (local steps, or all of them if it came too late) is its
    // own: the run's weights are the shared ones
    on_first(ranks_, [&] { shared_.reset_derived(); });
    shards_.share_weights();
}

// Summed in the order of the batches, whoever computed them.
static double mean_loss(std::span<const double> losses, const std::vector<Batch> & batches) {
    double counted = 0.0;
    for (const Batch & batch : batches) {
        counted += static_cast<double>(n_labels(batch));
    }
    return std::accumulate(losses.begin(), losses.end(), 0.0) / counted;
}

double evaluate(StepRunner & graph, const std::vector<Batch> & batches) {
    std::vector<double> losses;
    for (const Batch & batch : batches) {
        losses.push_back(graph.run(batch));
    }
    return mean_loss(losses, batches);
}

double evaluate(LocalGroup & ranks, StepRunner & graph, const std::vector<Batch> & batches) {
    const auto          n       = static_cast<int64_t>(batches.size());
    const int64_t       n_turns = (n + ranks.size() - 1) / ranks.size();
    std::vector<double> mine, losses;
    for (int64_t turn = 0; turn < n_turns; ++turn) {
        const int64_t i = ranks.rank() * n_turns + turn;
        mine.push_back(graph.run(i < n ? batches[i] : blank(batches[0])));
    }
    for (const std::vector<double> & part : from_all(ranks, mine)) {
        losses.insert(losses.end(), part.begin(), part.end());
    }
    return mean_loss(losses, batches);
}

namespace {

// A graph that tells the other ranks before each run, so that they follow.
class Leader : public StepRunner {
public:
    Leader(LocalGroup & ranks, StepRunner & graph) : ranks_(ranks), graph_(graph) {}

    double run(const Batch & batch, float scale, bool first) override {
        tell(1);
        return graph_.run(batch, scale, first);
    }
    void                 follow() override { graph_.follow(); }
    std::vector<float>   logits() const override { return graph_.logits(); }
    size_t               activation_bytes() const override { return graph_.activation_bytes(); }
    const GraphOptions & options() const override { return graph_.options(); }

    uint8_t tell(uint8_t more) {
        ranks_.broadcast({&more, 1}, 0);
        return more;
    }

private:
    LocalGroup & ranks_;
    StepRunner & graph_;
};

}  // namespace

void lead(
    LocalGroup & ranks, StepRunner & graph, const std::function<void(StepRunner & graph)> & fn
) {
    Leader leader(ranks, graph);
    if (ranks.rank() == 0) {
        fn(leader);
        leader.tell(0);
        return;
    }
    while (leader.tell(0) != 0) {  // what rank 0 says
        leader.follow();
    }
}

}  // namespace gt
