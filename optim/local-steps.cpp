#include "optim/local-steps.h"

#include <algorithm>
#include <utility>

namespace gt {

namespace {

class LocalSteps : public Optimizer {
public:
    LocalSteps(OptimizerParts parts, const LocalStepsOptions & options)
        : parts_(std::move(parts)), options_(options) {
        if (!parts_.messenger) {
            return;
        }
        residual_ = parts_.units->make_state();
        for (const ParamView & param : parts_.units->params()) {
            anchor_.emplace_back(param.weight.begin(), param.weight.end());
        }
        if (options_.outer_momentum > 0.0f) {
            outer_ = parts_.units->make_state();
        }
        if (options_.overlap) {
            base_ = anchor_;
        }
    }

    // One step of the rule; if a round is due, e = decay·e + (anchor - p) and its message.
    Bytes prepare(uint64_t step, float lr, float grad_scale) override {
        const bool moves = grad_scale != 0.0f;
        if (moves) {
            parts_.rule->begin(lr);
            ++n_steps_;
        }
        const auto inner = [&](const Unit & unit) {
            if (moves) {
                inner_step(unit, grad_scale);
            }
        };
        if (!parts_.messenger) {
            parts_.units->run_owned([&](int i, float *) { inner(parts_.units->all()[i]); });
            return {};
        }
        const bool due = parts_.messenger->due(step);
        if (due) {
            n_steps_ = 0;
            next_    = step + 1;
        }
        return parts_.messenger->pack(step, lr, residual_, [&](const Unit & unit, float * room) {
            inner(unit);
            if (!due) {
                return Fold{};
            }
            change_since_anchor(unit, room);
            return Fold{room, options_.residual_decay, 1.0f};
        });
    }

    // anchor = outer step by the mean change;  p = anchor + what we did that no message holds
    void apply(const Round & round) override {
        if (!parts_.messenger || !parts_.messenger->due(round.round)) {
            return;  // alone, or between rounds
        }
        const Inbox inbox = parts_.messenger->open(round);
        const float share = missed_share(round);
        if (round.has_mine) {
            parts_.messenger->forget(round.round);
        }
        parts_.units->run_owned([&](int i, float * room) {
            const Unit & unit = parts_.units->all()[i];
            leave_base(unit);
            if (!inbox.empty()) {
                parts_.messenger->merge(inbox, i, room);
                make_up(unit, room, share);
                outer_step(unit, room);
            }
            return_to_anchor(unit);
        });
    }

    // Our change is ours again: in the weights, where the next steps see it.
    void take_back(uint64_t round) override {
        if (parts_.messenger) {
            parts_.messenger->take_back(round, [&](const Unit & unit, const float * change) {
                make_up(unit, change, -1.0f);
            });
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
        for (size_t t = 0; t < anchor_.size(); ++t) {  // weights make own steps from there
            auto & derived = state.tensors[state.tensors.size() - anchor_.size() + t].derived;
            derived        = {parts_.units->params()[t].weight};
            if (options_.overlap) {
                derived.push_back(base_[t]);
            }
        }
        add("outer.", outer_, true);
        if (parts_.messenger) {
            state.counters.push_back({"steps-since-round", &n_steps_, false});
            state.counters.push_back({"step-of-next-round", &next_, false});
            parts_.messenger->add_state(state);
        }
        parts_.rule->add_state(state, false);
        return state;
    }

private:
    void inner_step(const Unit & unit, float grad_scale) {
        const int64_t begin = parts_.units->offset(unit), n = parts_.units->size(unit);
        const float * g = parts_.units->params()[unit.tensor].grad.data() + begin;
        if (!options_.sign) {
            parts_.rule->update(unit.tensor, begin, n, g, grad_scale);
            return;
        }
        std::vector<float> sign(n);
        for (int64_t i = 0; i < n; ++i) {
            sign[i] = g[i] > 0.0f ? 1.0f : g[i] < 0.0f ? -1.0f : 0.0f;
        }
        parts_.rule->update(unit.tensor, begin, n, sign.data(), 1.0f);
    }

    // How much of a round's change we had made, or sent, when it closed without us.
    float missed_share(const Round & round) {
        if (!round.has_mine) {
            return 1.0f;
        }
        if (round.round < next_) {
            return 0.0f;  // our message of it is in
        }
        const uint64_t n = std::exchange(n_steps_, 0), every = parts_.messenger->every();
        next_ = round.round + 1;
        return static_cast<float>(std::min(n, every)) / static_cast<float>(every);
    }

    void change_since_anchor(const Unit & unit, float * change) {
        const Span    at = span_of(unit);
        const float * a  = anchor_[unit.tensor].data() + at.begin;
        for (int64_t i = 0; i < at.n; ++i) {
            change[i] = a[i] - at.p[i];
        }
        if (options_.overlap) {
            std::copy_n(at.p, at.n, base_[unit.tensor].data() + at.begin);
        } else {
            std::copy_n(a, at.n, at.p);  // what is sent is no longer ours
        }
    }

    // p += factor·change
    void make_up(const Unit & unit, const float * change, float factor) {
        const Span at = span_of(unit);
        for (int64_t i = 0; i < at.n && factor != 0.0f; ++i) {
            at.p[i] = at.p[i] + factor * change[i];
        }
    }

    void outer_step(const Unit & unit, const float * change) {
        const int64_t begin = parts_.units->offset(unit), n = parts_.units->size(unit);
        float *       a  = anchor_[unit.tensor].data() + begin;
        const float   lr = options_.outer_lr, mu = options_.outer_momentum;
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

    // p - base: what we did that no message holds; weights are that, seen from the anchor.
    void leave_base(const Unit & unit) {
        const Span    at   = span_of(unit);
        const auto &  from = options_.overlap ? base_ : anchor_;
        const float * b    = from[unit.tensor].data() + at.begin;
        for (int64_t i = 0; i < at.n; ++i) {
            at.p[i] = at.p[i] - b[i];
        }
    }

    void return_to_anchor(const Unit & unit) {
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
        float * p;  // the weights there
    };
    Span span_of(const Unit & unit) const {
        const int64_t begin = parts_.units->offset(unit);
        return {
            begin, parts_.units->size(unit),
            parts_.units->params()[unit.tensor].weight.data() + begin};
    }

    OptimizerParts                  parts_;
    LocalStepsOptions               options_;
    std::vector<std::vector<float>> anchor_, outer_, residual_;
    std::vector<std::vector<float>> base_;  // with overlap: weights when the message was made
    uint64_t                        n_steps_ = 0;  // since our last message or missed round
    uint64_t                        next_    = 0;  // no round from here on has our message
};

}  // namespace

std::unique_ptr<Optimizer>
make_local_steps(OptimizerParts parts, const LocalStepsOptions & options) {
    return std::make_unique<LocalSteps>(std::move(parts), options);
}

}  // namespace gt
