#include "optim/local-steps.h"

#include <algorithm>

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
            sent_ = anchor_;
        }
    }

    // One step of the rule; if a round is due, e = decay·e + (anchor - p) and its message.
    Bytes prepare(uint64_t step, float lr, float grad_scale) override {
        const bool moves = grad_scale != 0.0f;
        if (moves) {
            parts_.rule->begin(lr);
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
        return parts_.messenger->pack(step, lr, residual_, [&](const Unit & unit, float * room) {
            inner(unit);
            if (!due) {
                return Fold{};
            }
            change_since_anchor(unit, room);
            return Fold{room, options_.residual_decay, 1.0f};
        });
    }

    // anchor = outer step by the mean change;  p = anchor, and on from there
    void apply(const Round & round) override {
        if (!parts_.messenger) {
            return;
        }
        if (!parts_.messenger->due(round.round)) {
            return;  // between rounds
        }
        const Inbox inbox = parts_.messenger->open(round);
        if (round.has_mine) {
            parts_.messenger->forget(round.round);
        }
        parts_.units->run_owned([&](int i, float * room) {
            const Unit & unit = parts_.units->all()[i];
            if (!inbox.empty()) {
                parts_.messenger->merge(inbox, i, room);
                outer_step(unit, room);
            }
            // our change is in the anchor or, taken back, in the residual: not in the weights any more
            return_to_anchor(unit);
        });
    }

    void take_back(uint64_t round) override {
        if (parts_.messenger) {
            parts_.messenger->take_back(round, residual_);
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
        add("sent.", sent_, false);
        add("anchor.", anchor_, true);
        for (size_t t = 0; t < anchor_.size(); ++t) {  // weights make own steps from there
            auto & derived = state.tensors[state.tensors.size() - anchor_.size() + t].derived;
            derived        = {parts_.units->params()[t].weight};
            if (options_.overlap) {
                derived.push_back(sent_[t]);
            }
        }
        add("outer.", outer_, true);
        if (parts_.messenger) {
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

    void change_since_anchor(const Unit & unit, float * change) {
        const int64_t begin = parts_.units->offset(unit), n = parts_.units->size(unit);
        const float * p = parts_.units->params()[unit.tensor].weight.data() + begin;
        const float * a = anchor_[unit.tensor].data() + begin;
        for (int64_t i = 0; i < n; ++i) {
            change[i] = a[i] - p[i];
        }
        if (options_.overlap) {
            std::copy(p, p + n, sent_[unit.tensor].data() + begin);
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

    void return_to_anchor(const Unit & unit) {
        const int64_t begin = parts_.units->offset(unit), n = parts_.units->size(unit);
        const float * a = anchor_[unit.tensor].data() + begin;
        float *       p = parts_.units->params()[unit.tensor].weight.data() + begin;
        if (!options_.overlap) {
            std::copy(a, a + n, p);
            return;
        }
        // steps made since the message left stay: the weights move as far from the new anchor
        float * s = sent_[unit.tensor].data() + begin;
        for (int64_t i = 0; i < n; ++i) {
            p[i] = a[i] + (p[i] - s[i]);
            s[i] = a[i];
        }
    }

    OptimizerParts                  parts_;
    LocalStepsOptions               options_;
    std::vector<std::vector<float>> anchor_, outer_, residual_, sent_;
};

}  // namespace

std::unique_ptr<Optimizer>
make_local_steps(OptimizerParts parts, const LocalStepsOptions & options) {
    return std::make_unique<LocalSteps>(std::move(parts), options);
}

}  // namespace gt
