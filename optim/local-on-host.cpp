#include "optim/local-arrays.h"
#include "optim/math/squares.h"

#include <algorithm>
#include <cmath>

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

class LocalOnHost : public LocalArrays {
public:
    LocalOnHost(const OptimizerParts & parts, const LocalStepsOptions & options)
        : parts_(parts), options_(options) {
        if (!parts_.layout) {
            return;
        }
        residual_ = parts_.units->make_state();
        for (const ParamView & param : parts_.units->params()) {
            anchor_.emplace_back(param.weight.begin(), param.weight.end());
        }
        if (options_.outer_momentum > 0.0f) {
            outer_ = parts_.units->make_state();
        }
        if (options_.has_base()) {
            base_ = anchor_;
        }
    }

    void step(float lr, float grad_scale) override {
        parts_.rule->begin(lr);
        parts_.units->run_owned([&](int i, float *) {
            const Unit &  unit  = parts_.units->all()[i];
            const int64_t begin = parts_.units->offset(unit), n = parts_.units->size(unit);
            const float * g = parts_.units->params()[unit.tensor].grad.data() + begin;
            if (options_.sign) {
                parts_.rule->update(unit.tensor, begin, n, signs_of(g, n).data(), 1.0f);
            } else {
                parts_.rule->update(unit.tensor, begin, n, g, grad_scale);
            }
        });
    }

    void extract(const Part & part, Bytes & message) override {
        each_sent(part.plan, [&](int i, float * room) {
            const Unit & unit = parts_.units->all()[i];
            float *      e    = residual_[unit.tensor].data() + parts_.units->offset(unit);
            change_since_anchor(unit, room);
            parts_.layout->replicator().extract(
                part.plan, unit, {room, options_.residual_decay, 1.0f}, e,
                message.data() + part.offsets[i]
            );
        });
    }

    void apply(const Inbox & inbox, const Plan & plan, float share, bool correct) override {
        each_sent(plan, [&](int i, float * room) {
            const Unit & unit = parts_.units->all()[i];
            subtract_base(unit);
            if (!inbox.empty()) {
                inbox.merge(i, room);
                add_change(unit, room, share);
                const float factor = restored_norm(inbox, i, room);
                if (correct) {
                    correct_momentum(unit, room, factor);
                }
                outer_step(unit, room, factor);
            }
            add_anchor(unit);
        });
    }

    void take_back(const Part & part, const Bytes & message) override {
        const Replicator & replicator = parts_.layout->replicator();
        each_sent(part.plan, [&](int i, float * room) {
            const Unit & unit = parts_.units->all()[i];
            const Piece  piece{message.data() + part.offsets[i]};
            if (is_valid(replicator, part.plan, unit, piece.bytes)) {
                replicator.merge(part.plan, unit, {&piece, 1}, room);
                add_change(unit, room, -1.0f);
            }
        });
    }

    void drop_residual() override {
        for (auto & tensor : residual_) {
            std::fill(tensor.begin(), tensor.end(), 0.0f);
        }
    }

    void add_state(OptimizerState & state) override {
        const auto add = [&](const char * name, std::vector<std::vector<float>> & from,
                             bool shared) {
            add_tensors(
                state, parts_, name, std::vector<std::span<float>>(from.begin(), from.end()),
                shared, nullptr
            );
        };
        add("residual.", residual_, false);
        add("base.", base_, false);
        add("anchor.", anchor_, true);
        for (size_t t = 0; t < anchor_.size(); ++t) {  // local steps start from the anchor
            auto & derived = state.tensors[state.tensors.size() - anchor_.size() + t].derived;
            derived        = {{parts_.units->params()[t].weight}};
            if (!base_.empty()) {
                derived.push_back({base_[t]});
            }
        }
        add("outer.", outer_, true);
    }

private:
    // Calls fn for this rank's units that the round exchanges: all, unless fragments take turns.
    void each_sent(const Plan & plan, const Units::Work & fn) {
        parts_.units->run_owned([&](int i, float * room) {
            if (parts_.layout->replicator().bytes(plan, parts_.units->all()[i]) > 0) {
                fn(i, room);
            }
        });
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
        const std::span<float> momentum = parts_.rule->momentum(unit.tensor);
        if (momentum.empty()) {
            return;
        }
        const int64_t begin = parts_.units->offset(unit), n = parts_.units->size(unit);
        const auto    d = correction(
               anchor_[unit.tensor].data() + begin, base_[unit.tensor].data() + begin, mean, factor, n
           );
        gt::correct_momentum(momentum.subspan(begin, n), options_.correction, d.data());
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
        float * p;  // the weights there
    };
    Span span_of(const Unit & unit) {
        const int64_t begin = parts_.units->offset(unit);
        float *       p     = parts_.units->params()[unit.tensor].weight.data() + begin;
        return {begin, parts_.units->size(unit), p};
    }

    const OptimizerParts &          parts_;
    LocalStepsOptions               options_;
    std::vector<std::vector<float>> anchor_, outer_, residual_;
    std::vector<std::vector<float>> base_;  // weights when the message was made
};

}  // namespace

void add_tensors(
    OptimizerState &                  state,
    const OptimizerParts &            parts,
    const char *                      name,
    std::span<const std::span<float>> tensors,
    bool                              shared,
    Device *                          device
) {
    for (size_t t = 0; t < tensors.size(); ++t) {
        state.tensors.push_back({name + parts.units->shapes()[t].name, tensors[t], shared, device});
    }
}

std::unique_ptr<LocalArrays>
make_local_on_host(const OptimizerParts & parts, const LocalStepsOptions & options) {
    return std::make_unique<LocalOnHost>(parts, options);
}

}  // namespace gt
