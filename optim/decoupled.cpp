#include "optim/decoupled.h"

namespace gt {

namespace {

void take_sign(float * u, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        u[i] = u[i] > 0.0f ? 1.0f : u[i] < 0.0f ? -1.0f : 0.0f;
    }
}

class Decoupled : public Optimizer {
public:
    Decoupled(OptimizerParts parts, const DecoupledOptions & options)
        : parts_(std::move(parts)), options_(options), momentum_(parts_.units->make_state()) {}

    // m = decay·m + lr·g;  q = extract(m);  m -= restore(q)
    Bytes prepare(uint64_t step, float lr, float grad_scale) override {
        const float decay = options_.fold_by_lr ? options_.decay : 1.0f;
        const float alpha = options_.fold_by_lr ? lr * grad_scale : grad_scale;
        return parts_.messenger->pack(step, lr, momentum_, [&](const Unit & unit, float *) {
            const float * g = parts_.units->params()[unit.tensor].grad.data();
            return Fold{
                grad_scale != 0.0f ? g + parts_.units->offset(unit) : nullptr, decay, alpha};
        });
    }

    // Q = combine(q of every host);  u = restore(Q);  u = sign(u);  p = rule(p, u)
    void apply(const Round & round) override {
        const Inbox inbox = parts_.messenger->open(round);
        if (round.has_mine) {
            parts_.messenger->forget(round.round);
        }
        if (inbox.empty()) {
            return;
        }
        parts_.rule->begin(inbox.lr);
        parts_.units->run_owned([&](int i, float * room) {
            const Unit &  unit = parts_.units->all()[i];
            const int64_t n    = parts_.units->size(unit);
            parts_.messenger->merge(inbox, i, room);
            if (options_.made_up && !round.has_mine) {
                make_up(unit, room);
            }
            if (options_.sign) {
                take_sign(room, n);
            }
            parts_.rule->update(unit.tensor, parts_.units->offset(unit), n, room, 1.0f);
        });
    }

    void take_back(uint64_t round) override { parts_.messenger->take_back(round, momentum_); }

    OptimizerState state() override {
        OptimizerState state;
        for (size_t t = 0; t < momentum_.size(); ++t) {
            const std::string & name = parts_.units->shapes()[t].name;
            state.tensors.push_back({"momentum." + name, momentum_[t], false});
        }
        parts_.messenger->add_state(state);
        parts_.rule->add_state(state, true);
        return state;
    }

private:
    // The others' mean counted in full where ours had a part: only the difference is still owed.
    void make_up(const Unit & unit, const float * mean) {
        float *       m = momentum_[unit.tensor].data() + parts_.units->offset(unit);
        const int64_t n = parts_.units->size(unit);
        for (int64_t i = 0; i < n; ++i) {
            m[i] = m[i] - mean[i];
        }
    }

    OptimizerParts                  parts_;
    DecoupledOptions                options_;
    std::vector<std::vector<float>> momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_decoupled(OptimizerParts parts, const DecoupledOptions & options) {
    return std::make_unique<Decoupled>(std::move(parts), options);
}

}  // namespace gt
