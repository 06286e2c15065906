#include "optim/local-steps.h"

#include "optim/math/squares.h"
#include "optim/on-device.h"
#include "optim/wire/in-flight.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gt {

namespace {

// The mean change, times factor, minus our own, which is anchor - base, in units of the root-mean-square of
// our own: the rule's momentum moves by it, since otherwise the next local steps would repeat what our
// samples have in common with nobody's. Zero if our change is.
std::vector<float>
correction(const float * anchor, const float * base, const float * mean, float factor, int64_t n) {
    std::vector<float> d(n);
    for (int64_t i = 0; i < n; ++i) {
        d[i] = anchor[i] - base[i];
    }
    const double square = sum_of_squares(d.data(), n) / static_cast<double>(n);
    const auto   scale  = square > 0.0 ? static_cast<float>(1.0 / std::sqrt(square)) : 0.0f;
    for (int64_t i = 0; i < n; ++i) {
        d[i] = scale * (factor * mean[i] - d[i]);
    }
    return d;
}

std::vector<float> signs_of(const float * x, int64_t n) {
    std::vector<float> sign(n);
    for (int64_t i = 0; i < n; ++i) {
        sign[i] = x[i] > 0.0f ? 1.0f : x[i] < 0.0f ? -1.0f : 0.0f;
    }
    return sign;
}

class LocalSteps : public RankOptimizer {
public:
    LocalSteps(OptimizerParts parts, const LocalStepsOptions & options)
        : RankOptimizer(std::move(parts)), options_(options) {
        if (!parts_.layout) {
            return;
        }
        residual_ = parts_.units->make_state();
        for (const ParamView & param : parts_.units->params()) {
            anchor_.push_back(Floats{param.weight, param.device}.read());
            device_ = param.device;
        }
        if (device_) {
            near_ = anchor_;
        }
        if (options_.outer_momentum > 0.0f) {
            outer_ = parts_.units->make_state();
        }
        if (options_.overlap || options_.correction > 0.0f) {
            base_ = anchor_;
        }
        made_.resize(options_.fragments);
    }

    // anchor = outer step by the mean change;  p = anchor + our change that is in no message
    void apply(const Round & round) override {
        if (!parts_.layout || !parts_.layout->due(round.step)) {
            return;  // alone, or between rounds
        }
        const Inbox inbox(*parts_.layout, round, parts_.clip_messages);
        const Plan  plan  = parts_.layout->plan(parts_.layout->replicator(), round.step);
        const bool  sent  = round.has_mine && round.step < made_of(round.step).next;
        const float share = missed_share(round);
        if (round.has_mine) {
            in_flight_.forget(round.step);
        }
        each_sent(plan, [&](int i, float * room) {
            const Unit & unit = parts_.units->all()[i];
            subtract_base(unit);
            if (!inbox.empty()) {
                inbox.merge(i, room);
                add_change(unit, room, share);
                const float factor = restored_norm(inbox, i, room);
                if (sent && options_.correction > 0.0f) {
                    correct_momentum(unit, room, factor);
                }
                outer_step(unit, room, factor);
            }
            add_anchor(unit);
        });
    }

    // Adds our change back to the weights.
    void take_back(uint64_t step) override {
        Bytes kept = in_flight_.take(step);
        if (kept.empty()) {
            return;
        }
        const Replicator & replicator = parts_.layout->replicator();
        const Part         part       = parts_.layout->part(step);
        const Bytes        message    = parts_.layout->part_of(part, step, std::move(kept));
        each_sent(part.plan, [&](int i, float * room) {
            const Unit & unit = parts_.units->all()[i];
            const Piece  piece{message.data() + part.offsets[i]};
            if (is_valid(replicator, part.plan, unit, piece.bytes)) {
                replicator.merge(part.plan, unit, {&piece, 1}, room);
                add_change(unit, room, -1.0f);
            }
        });
    }

    // Keeps the moments of the rule: they are not sent.
    void drop_residual() override {
        for (auto & tensor : residual_) {
            std::fill(tensor.begin(), tensor.end(), 0.0f);
        }
    }

    OptimizerState state() override {
        OptimizerState state;
        const auto     add = [&](const char * name, std::vector<std::vector<float>> & from,
                             bool shared) {
            for (size_t t = 0; t < from.size(); ++t) {
                state.tensors.push_back({name + parts_.units->shapes()[t].name, from[t], shared});
            }
        };
        add("residual.", residual_, false);
        add("base.", base_, false);
        add("anchor.", anchor_, true);
        for (size_t t = 0; t < anchor_.size(); ++t) {  // local steps start from the anchor
            auto & derived = state.tensors[state.tensors.size() - anchor_.size() + t].derived;
            derived        = {{parts_.units->params()[t].weight, device_}};
            if (!base_.empty()) {
                derived.push_back({base_[t]});
            }
        }
        add("outer.", outer_, true);
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
            if (device_) {
                step_on_device(parts_, options_.sign, lr, grad_scale, *device_);
            } else {
                parts_.rule->begin(lr);
                parts_.units->run_owned([&](int i, float *) {
                    inner_step(parts_.units->all()[i], grad_scale);
                });
            }
        }
        if (!parts_.layout || !parts_.layout->due(step)) {
            return {};
        }
        made_of(step) = {.n_steps = 0, .next = step + 1};
        // the message: its head now, the bytes of each unit below
        const Part part    = parts_.layout->part(step);
        Bytes      message = parts_.layout->blank(part, step, lr);
        each_sent(part.plan, [&](int i, float * room) {
            const Unit & unit = parts_.units->all()[i];
            float *      e    = residual_[unit.tensor].data() + parts_.units->offset(unit);
            change_since_anchor(unit, room);
            parts_.layout->replicator().extract(
                part.plan, unit, {room, options_.residual_decay, 1.0f}, e,
                message.data() + part.offsets[i]
            );
        });
        in_flight_.keep(step, message);
        return message;
    }

private:
    void inner_step(const Unit & unit, float grad_scale) {
        const int64_t begin = parts_.units->offset(unit), n = parts_.units->size(unit);
        const float * g = parts_.units->params()[unit.tensor].grad.data() + begin;
        if (!options_.sign) {
            parts_.rule->update(unit.tensor, begin, n, g, grad_scale);
            return;
        }
        parts_.rule->update(unit.tensor, begin, n, signs_of(g, n).data(), 1.0f);
    }

    // The local steps of one fragment on this host.
    struct Made {
        uint64_t n_steps = 0;  // since our last message or missed round
        uint64_t next    = 0;  // rounds from this step on do not have our message
    };
    Made & made_of(uint64_t step) { return made_[step / parts_.layout->every() % made_.size()]; }

    // Calls fn for this rank's units that the round exchanges: all, unless fragments take turns. On a
    // device, their weights are in near_ meanwhile.
    void each_sent(const Plan & plan, const Units::Work & fn) {
        const auto is_sent = [&](int i) {
            return parts_.layout->replicator().bytes(plan, parts_.units->all()[i]) > 0;
        };
        const auto copy = [&](auto && transfer) {
            for (const int i : parts_.units->owned()) {
                const Unit & unit = parts_.units->all()[i];
                if (device_ && is_sent(i)) {
                    const Span at     = span_of(unit);
                    float *    weight = parts_.units->params()[unit.tensor].weight.data();
                    transfer(at.p, weight + at.begin, at.n * sizeof(float));
                }
            }
        };
        copy([&](float * near, float * far, size_t n) { device_->read(near, far, n); });
        parts_.units->run_owned([&](int i, float * room) {
            if (is_sent(i)) {
                fn(i, room);
            }
        });
        copy([&](float * near, float * far, size_t n) { device_->write(far, near, n); });
    }

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

    void change_since_anchor(const Unit & unit, float * change) {
        const Span    at = span_of(unit);
        const float * a  = anchor_[unit.tensor].data() + at.begin;
        for (int64_t i = 0; i < at.n; ++i) {
            change[i] = a[i] - at.p[i];
        }
        if (!base_.empty()) {
            std::copy_n(at.p, at.n, base_[unit.tensor].data() + at.begin);
        }
        if (!options_.overlap) {
            std::copy_n(a, at.n, at.p);  // the change is in the message now
        }
    }

    // p += factor·change
    void add_change(const Unit & unit, const float * change, float factor) {
        const Span at = span_of(unit);
        for (int64_t i = 0; i < at.n && factor != 0.0f; ++i) {
            at.p[i] = at.p[i] + factor * change[i];
        }
    }

    void correct_momentum(const Unit & unit, const float * mean, float factor) {
        const int64_t begin = parts_.units->offset(unit), n = parts_.units->size(unit);
        const auto    d = correction(
               anchor_[unit.tensor].data() + begin, base_[unit.tensor].data() + begin, mean, factor, n
           );
        parts_.rule->correct(unit.tensor, begin, n, options_.correction, d.data());
    }

    float restored_norm(const Inbox & inbox, int i, const float * change) const {
        const auto n = static_cast<size_t>(parts_.units->size(parts_.units->all()[i]));
        return options_.restore_norm ? inbox.restored_norm(i, {change, n}) : 1.0f;
    }

    // factor: on the mean change
    void outer_step(const Unit & unit, const float * change, float factor) {
        const int64_t begin = parts_.units->offset(unit), n = parts_.units->size(unit);
        float *       a  = anchor_[unit.tensor].data() + begin;
        const float   lr = options_.outer_lr * factor, mu = options_.outer_momentum;
        if (mu > 0.0f) {
            float * v = outer_[unit.tensor].data() + begin;
            for (int64_t i = 0; i < n; ++i) {
                v[i] = mu * v[i] + change[i];
                a[i] = a[i] - lr * (change[i] + mu * v[i]);
            }
        } else {
            for (int64_t i = 0; i < n; ++i) {
                a[i] = a[i] - lr * change[i];
            }
        }
    }

    // p -= base: leaves our change that is in no message.
    void subtract_base(const Unit & unit) {
        const Span    at   = span_of(unit);
        const auto &  from = options_.overlap ? base_ : anchor_;
        const float * b    = from[unit.tensor].data() + at.begin;
        for (int64_t i = 0; i < at.n; ++i) {
            at.p[i] = at.p[i] - b[i];
        }
    }

    // p += anchor
    void add_anchor(const Unit & unit) {
        const Span    at = span_of(unit);
        const float * a  = anchor_[unit.tensor].data() + at.begin;
        for (int64_t i = 0; i < at.n; ++i) {
            at.p[i] = a[i] + at.p[i];
        }
        if (options_.overlap) {
            std::copy_n(a, at.n, base_[unit.tensor].data() + at.begin);
        }
    }

    struct Span {
        int64_t begin, n;
        float * p;  // the weights there, in host memory
    };
    Span span_of(const Unit & unit) {
        const int64_t begin = parts_.units->offset(unit);
        float *       p =
            device_ ? near_[unit.tensor].data() : parts_.units->params()[unit.tensor].weight.data();
        return {begin, parts_.units->size(unit), p + begin};
    }

    LocalStepsOptions               options_;
    std::vector<std::vector<float>> anchor_, outer_, residual_;
    Device *                        device_ = nullptr;  // of the weights; null: host memory
    std::vector<std::vector<float>> near_;              // on a device: weights in host memory
    std::vector<std::vector<float>>
                      base_;  // overlap, correction: weights when the message was made
    InFlight          in_flight_;
    std::vector<Made> made_;  // by fragment
};

}  // namespace

std::unique_ptr<Optimizer>
make_local_steps(OptimizerParts parts, const LocalStepsOptions & options) {
    return std::make_unique<LocalSteps>(std::move(parts), options);
}

}  // namespace gt
