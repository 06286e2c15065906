#include "ggml-train/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gt {

Trainer::Trainer(
    const TrainerParts & parts, const Schedule & schedule, const TrainerOptions & options
)
    : ranks_(parts.ranks), graph_(parts.graph), shards_(parts.shards), optimizer_(parts.optimizer),
      shared_(parts.shared), data_(parts.data), peers_(parts.peers), schedule_(schedule),
      options_(options), pace_(options.batch / graph_.options().B) {
    GT_CHECK(
        options.batch > 0 && options.batch % graph_.options().B == 0,
        "a batch is a whole number of micro-batches"
    );
}

static Error not_finite(uint64_t step, double loss, double grad_norm) {
    return Error(format(
        "step %llu: the loss is %g, the norm of the gradient %g. Restart with --fresh and a lower "
        "--lr or a longer --warmup, or export the last checkpoint and continue from it",
        static_cast<unsigned long long>(step + 1), loss, grad_norm
    ));
}

StepResult Trainer::train() {
    StepResult result;
    // The gradient is taken at the weights that the other hosts have now. A round in flight is applied
    // after it, as always with overlap: so a resumed run has the bits of one that was not interrupted.
    catch_up(result, in_flight_.empty());
    if (is_over()) {
        result.step = step_ - 1;
        return result;
    }
    Prepared ours = prepare(result);
    if (is_over()) {
        result.step = step_ - 1;  // the others have done the last step, or the user wants to stop:
                                  // our gradient is not needed
        return result;
    }
    result.step = step_;
    if (options_.in_turn && from_first(ranks_, [&] { return !ours.message.empty(); })) {
        const uint64_t n_joins = n_joins_;
        collect_due(result);
        if (is_stopped_ || n_joins_ != n_joins || step_ != result.step) {
            optimizer_.take_back(result.step);  // the run is elsewhere: our next message has it
            step_           = std::max(step_, result.step + 1);
            result.validate = validates_;
            return result;
        }
    }
    result.n_sent = publish(std::move(ours.message));
    if (result.n_sent == 0) {
        apply({.step = step_, .messages = {}, .has_mine = true});  // no round is due
    }
    step_ = result.step + 1;
    collect_due(result);
    result.validate = validates_;
    return result;
}

// The one slow call: messages of all hosts, in the order in which every host applies them.
void Trainer::collect_due(StepResult & result) {
    while (!in_flight_.empty() && in_flight_.front() + options_.overlap <= result.step &&
           !is_stopped_) {
        collect(result);
    }
}

// Samples -> gradient -> message. Rounds may close without us meanwhile: they are applied before the
// message is made. F16 has no small numbers: the loss is scaled up as far as the gradient allows.
Prepared Trainer::prepare(StepResult & result) {
    const auto batch = from_first(ranks_, [&] {
        const int64_t n = pace_.n_micro() * graph_.options().B;
        return std::make_shared<const Batch>(data_.train(step_, n));
    });
    n_unsent_ += static_cast<uint64_t>(batch->n_samples);
    result.n_samples = batch->n_samples;

    Prepared ours;
    float    loss_scale = options_.loss_scale;
    do {
        result.loss = gradient(*batch, loss_scale);
        if (!std::isfinite(result.loss)) {
            throw not_finite(step_, result.loss, NAN);
        }
        catch_up(result, true);
        if (is_over()) {
            n_unsent_ -= static_cast<uint64_t>(batch->n_samples);
            return {};
        }
        result.lr = schedule_.at(step_);
        ours      = optimizer_.prepare(step_, result.lr, {options_.clip, loss_scale});
    } while (!std::isfinite(ours.grad_norm) && (loss_scale /= 2.0f) >= 1.0f);

    result.grad_norm = ours.grad_norm;
    if (!std::isfinite(result.grad_norm)) {
        throw not_finite(step_, result.loss, result.grad_norm);
    }
    return ours;
}

// Forward and backward. The gradients of all ranks' micro-batches sum to that of the mean loss.
double Trainer::gradient(const Batch & batch, float loss_scale) {
    const double  from    = steady_seconds();
    const int64_t each    = graph_.options().B;
    const int64_t n_micro = batch.n_samples / each;
    GT_CHECK(n_micro * each == batch.n_samples, "a batch is a whole number of micro-batches");
    const int64_t n_turns = (n_micro + ranks_.size() - 1) / ranks_.size();
    const double  counted = static_cast<double>(batch.n_labels());
    double        mine    = 0.0;
    for (int64_t turn = 0; turn < n_turns; ++turn) {
        const int64_t i = ranks_.rank() * n_turns + turn;
        const Batch   micro =
            i < n_micro ? batch.part(i * each, (i + 1) * each) : batch.part(0, each).blank();
        mine += graph_.run(micro, static_cast<float>(loss_scale / counted), turn == 0);
    }
    shards_.reduce_grads();
    const std::vector<double> losses = from_all(ranks_, mine);
    const double              loss   = std::accumulate(losses.begin(), losses.end(), 0.0);

    last_ = {loss / counted, batch.n_samples, steady_seconds() - from};
    pace_.measured(n_micro, last_.seconds);
    return last_.loss;
}

// Rank 0 sends the host's message, if a round is due. Returns its size.
size_t Trainer::publish(Bytes message) {
    const size_t n = from_first(ranks_, [&] {
        const size_t n_bytes = message.size();
        if (n_bytes > 0) {
            peers_.publish(step_, n_unsent_, std::move(message));
        }
        return n_bytes;
    });
    if (n > 0) {
        in_flight_.push_back(step_);
        published_ = steady_seconds();
        n_unsent_  = 0;
    }
    return n;
}

// Applies rounds that closed without us. admission: and waits until the run has admitted us.
void Trainer::catch_up(StepResult & result, bool admission) {
    while (true) {
        const double from   = steady_seconds();
        const auto   missed = from_first(ranks_, [&] {
            auto found = peers_.missed(admission);
            return found ? std::make_shared<const Collected>(std::move(*found)) : nullptr;
        });
        if (!missed) {
            return;
        }
        result.waited += steady_seconds() - from;
        finish(*missed, result);
        if (is_stopped_) {
            return;
        }
    }
}

// Waits for the oldest round in flight and applies it.
void Trainer::collect(StepResult & result) {
    const double from      = steady_seconds();
    const auto   collected = from_first(ranks_, [&] {
        return std::make_shared<const Collected>(peers_.collect(in_flight_.front()));
    });
    const double to        = steady_seconds();
    result.waited += to - from;
    hidden_ = std::max(0.0, std::min(from, to - collected->info.age_s) - published_);
    finish(*collected, result);
}

// A closed round becomes new weights: the same on every host.
void Trainer::finish(const Collected & collected, StepResult & result) {
    is_stopped_ = collected.is_stopped;
    if (is_stopped_) {
        return;
    }
    settle(collected);
    if (collected.fault != Fault::none) {
        join({}, false);
        return;
    }
    apply(collected.round);
    note(collected, result);
    report(collected, result);
}

// Nothing is lost or sent twice: a message that missed its round returns to the momentum.
void Trainer::settle(const Collected & collected) {
    const Round & round = collected.round;
    if (!round.has_mine) {
        optimizer_.take_back(round.mine);
    }
    std::erase_if(in_flight_, [&](uint64_t step) {
        return step <= round.step || (!round.has_mine && step == round.mine);
    });
    if (collected.drop_residual) {
        optimizer_.drop_residual();
        on_first(ranks_, [&] { shared_.reset_derived(); });
    }
}

void Trainer::apply(const Round & round) {
    optimizer_.apply(round);
    shards_.share_weights();
    step_ = std::max(step_, round.step + 1);
}

// The round for the log and for the pace.
void Trainer::note(const Collected & collected, StepResult & result) {
    const Round &     round = collected.round;
    const RoundInfo & info  = collected.info;
    if (!info.in.empty() || !info.late.empty()) {
        result.round = round.step;
        result.info  = info;
        validates_   = info.validate;
    }
    if (!round.messages.empty()) {
        // The pace is the time from the opening of a round, i.e. the end of the one before; with overlap
        // the steps of a message begin before that. If the round before is still open when a message is
        // sent, the time counts from the opening of that one (comm/sequencer/membership.h).
        const uint64_t n_steps  = std::max<uint64_t>(1, round.step - applied_);
        const bool     is_twice = options_.overlap >= n_steps && !options_.in_turn;
        const double   all      = is_twice ? info.pace_s / 2.0 : info.pace_s + hidden_;
        pace_.others(info.pace_s > 0.0 ? all / static_cast<double>(n_steps) : 0.0);
        applied_ = round.step;
    }
}

// Digest, metrics and slices of the shared checkpoint for the other hosts.
void Trainer::report(const Collected & collected, const StepResult & result) {
    const Round & round = collected.round;
    on_first(ranks_, [&] {
        Applied applied{.step = round.step, .slices = slices(collected.slices)};
        if (!round.messages.empty() || !applied.slices.empty()) {
            const double n_tokens = static_cast<double>(last_.n_samples * graph_.options().T);
            applied.state_digest  = shared_.digest();
            applied.loss          = last_.loss;
            applied.tokens_s      = n_tokens / (last_.seconds + result.waited);
            applied.waited_s      = result.waited;
        }
        if (applied.state_digest != 0) {
            peers_.applied(std::move(applied));
        }
    });
}

std::vector<Applied::Slice> Trainer::slices(const SliceOrder & order) const {
    std::vector<Applied::Slice> slices;
    for (const int i : order.ours) {
        slices.push_back({i, shared_.slice(i, order.n_slices)});
    }
    return slices;
}

// Loads the shared checkpoint. False: it has been removed meanwhile.
bool Trainer::load(const Joined & joined) {
    for (int i = 0; i < joined.n_slices; ++i) {
        const auto bytes = peers_.slice(i);
        if (!bytes) {
            return false;
        }
        shared_.set_slice(i, joined.n_slices, *bytes);
    }
    const bool is_known = joined.n_slices > 0 && joined.state_digest != 0;
    if (is_known && shared_.digest() != joined.state_digest) {
        throw Error(format(
            "the shared checkpoint after step %llu is not the state that its writers reported; "
            "test "
            "this machine's memory, and install the same version as on the other hosts",
            static_cast<unsigned long long>(joined.step)
        ));
    }
    return true;
}

void Trainer::join(std::span<const uint8_t> mark, bool fresh) {
    const auto joined = from_first(ranks_, [&] {
        auto place = std::make_shared<Joined>(peers_.join(mark, fresh));
        while (!load(*place)) {
            *place = peers_.join(mark, fresh);
        }
        // reported before the first message: a host with another model is noticed in the first round
        peers_.applied(
            {.step         = place->step - 1,
             .state_digest = shared_.digest(),
             .loss         = NAN,
             .slices       = slices(place->write)}
        );
        return place;
    });
    ++n_joins_;
    // our own state may be steps ahead of the last round
    step_    = joined->n_slices > 0 ? joined->step : std::max(step_, joined->step);
    applied_ = joined->step - 1;
    in_flight_.assign(joined->in_flight.begin(), joined->in_flight.end());
    published_ = steady_seconds();
    shards_.share_weights();
}

void Trainer::drain(StepResult & result) {
    while (!in_flight_.empty()) {
        collect(result);
        if (is_stopped_) {
            throw Error("stopped while waiting for the last round; run the same command to resume");
        }
    }
    // local steps since the last message belong to this host; the run's weights are the shared ones
    on_first(ranks_, [&] { shared_.reset_derived(); });
    shards_.share_weights();
}

}  // namespace gt
