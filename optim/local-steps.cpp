#include "optim/local-steps.h"

#include "optim/local-arrays.h"
#include "optim/wire/in-flight.h"

#include <algorithm>
#include <utility>

namespace gt {

namespace {

class LocalSteps : public RankOptimizer {
public:
    LocalSteps(
        OptimizerParts                    parts,
        const LocalStepsOptions &         options,
        std::unique_ptr<DeviceReplicator> replicator,
        Device *                          device
    )
        : RankOptimizer(std::move(parts)), options_(options) {
        arrays_ = device ? make_local_on_device(parts_, options, std::move(replicator), *device)
                         : make_local_on_host(parts_, options);
        made_.resize(parts_.layout ? options_.fragments : 0);
    }

    // anchor = outer step by the mean change;  p = anchor + our change that is in no message
    void apply(const Round & round) override {
        if (!parts_.layout || !parts_.layout->due(round.step)) {
            return;  // alone, or between rounds
        }
        const Inbox inbox(*parts_.layout, round, parts_.clip_messages);
        const Plan  plan  = parts_.layout->plan(round.step);
        const bool  sent  = round.has_mine && round.step < made_of(round.step).next;
        const float share = missed_share(round);
        if (round.has_mine) {
            in_flight_.forget(round.step);
        }
        arrays_->apply(inbox, plan, share, sent && options_.correction > 0.0f);
    }

    void take_back(uint64_t step) override {
        Bytes kept = in_flight_.take(step);
        if (!kept.empty()) {
            const Part part = parts_.layout->part(step);
            arrays_->take_back(part, parts_.layout->part_of(part, step, std::move(kept)));
        }
    }

    // Keeps the moments of the rule: they are not sent.
    void drop_residual() override { arrays_->drop_residual(); }

    OptimizerState state() override {
        OptimizerState state;
        arrays_->add_state(state);
        if (parts_.layout) {
            for (size_t f = 0; f < made_.size(); ++f) {
                const std::string suffix = f == 0 ? "" : format(".%zu", f);
                state.counters.push_back({"steps-since-round" + suffix, &made_[f].n_steps, false});
                state.counters.push_back({"step-of-next-round" + suffix, &made_[f].next, false});
            }
            in_flight_.add_state(state);
        }
        parts_.rule->add_state(state, false);
        return state;
    }

protected:
    // One step of the rule; if a round is due, e = decay·e + (anchor - p);  q = extract(e);  e -= q
    Bytes pack(uint64_t step, float lr, float grad_scale) override {
        if (grad_scale != 0.0f) {
            for (Made & made : made_) {
                ++made.n_steps;
            }
            arrays_->step(lr, grad_scale);
        }
        if (!parts_.layout || !parts_.layout->due(step)) {
            return {};
        }
        made_of(step) = {.n_steps = 0, .next = step + 1};
        // the message: its head now, the bytes of each unit below
        const Part part    = parts_.layout->part(step);
        Bytes      message = parts_.layout->blank(part, step, lr);
        arrays_->extract(part, message);
        in_flight_.keep(step, message);
        return message;
    }

private:
    // The local steps of one fragment on this host.
    struct Made {
        uint64_t n_steps = 0;  // since our last message or missed round
        uint64_t next    = 0;  // rounds from this step on do not have our message
    };
    Made & made_of(uint64_t step) { return made_[step / parts_.layout->every() % made_.size()]; }

    // The fraction of a round's steps that we had made when it closed without our message.
    float missed_share(const Round & round) {
        if (!round.has_mine) {
            return 1.0f;
        }
        Made & made = made_of(round.step);
        if (round.step < made.next) {
            return 0.0f;  // the round has our message
        }
        const uint64_t n = std::exchange(made.n_steps, 0);
        made.next        = round.step + 1;
        // the first round of a fragment is shorter
        const uint64_t all = std::min(parts_.layout->every() * made_.size(), round.step + 1);
        return static_cast<float>(std::min(n, all)) / static_cast<float>(all);
    }

    LocalStepsOptions            options_;
    std::unique_ptr<LocalArrays> arrays_;
    InFlight                     in_flight_;
    std::vector<Made>            made_;  // by fragment
};

}  // namespace

std::unique_ptr<Optimizer> make_local_steps(
    OptimizerParts                    parts,
    const LocalStepsOptions &         options,
    std::unique_ptr<DeviceReplicator> replicator,
    Device *                          device
) {
    return std::make_unique<LocalSteps>(std::move(parts), options, std::move(replicator), device);
}

}  // namespace gt
