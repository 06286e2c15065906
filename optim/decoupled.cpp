#include "optim/decoupled.h"

#include "optim/wire/in-flight.h"

#include <algorithm>

namespace gt {

namespace {

void take_sign(float * u, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        u[i] = u[i] > 0.0f ? 1.0f : u[i] < 0.0f ? -1.0f : 0.0f;
    }
}

class Decoupled : public RankOptimizer {
public:
    Decoupled(OptimizerParts parts, const DecoupledOptions & options)
        : RankOptimizer(std::move(parts)), options_(options),
          momentum_(parts_.units->make_state()) {}

    void apply(const Round & round) override {
        if (round.has_mine) {
            in_flight_.forget(round.step);
        }
        const bool missed = options_.subtract_missed_mean && !round.has_mine;
        apply_mean(parts_, round, options_.sign, [&](const Unit & unit, const float * mean) {
            if (missed) {
                subtract_mean(unit, mean);
            }
        });
    }

    void take_back(uint64_t step) override {
        Bytes kept = in_flight_.take(step);
        if (kept.empty()) {
            return;
        }
        const Replicator & replicator = parts_.layout->replicator();
        const Part         part       = parts_.layout->part(step);
        const Bytes        message    = parts_.layout->part_of(part, step, std::move(kept));
        parts_.units->run_owned([&](int i, float *) {
            const Unit &    unit  = parts_.units->all()[i];
            const uint8_t * bytes = message.data() + part.offsets[i];
            if (is_valid(replicator, part.plan, unit, bytes)) {
                replicator.give_back(part.plan, unit, bytes, momentum(unit));
            }
        });
    }

    void drop_residual() override {
        for (auto & tensor : momentum_) {
            std::fill(tensor.begin(), tensor.end(), 0.0f);
        }
    }

    OptimizerState state() override {
        OptimizerState state;
        for (size_t t = 0; t < momentum_.size(); ++t) {
            const std::string & name = parts_.units->shapes()[t].name;
            state.tensors.push_back({"momentum." + name, momentum_[t], false});
        }
        in_flight_.add_state(state);
        parts_.rule->add_state(state, true);
        return state;
    }

protected:
    // m = decay·m + lr·g;  q = extract(m);  m -= restore(q)
    Bytes pack(uint64_t step, float lr, float grad_scale) override {
        const float decay = options_.fold_by_lr ? options_.decay : 1.0f;
        const float alpha = options_.fold_by_lr ? lr * grad_scale : grad_scale;
        // the message: its head now, the bytes of each unit below; none if no round is due
        const bool due     = parts_.layout->due(step);
        const Part part    = due ? parts_.layout->part(step) : Part{};
        Bytes      message = due ? parts_.layout->blank(part, step, lr) : Bytes{};
        parts_.units->run_owned([&](int i, float *) {
            const Unit &  unit = parts_.units->all()[i];
            const float * grad =
                parts_.units->params()[unit.tensor].grad.data() + parts_.units->offset(unit);
            const Fold fold{grad_scale != 0.0f ? grad : nullptr, decay, alpha};
            uint8_t *  out = due ? message.data() + part.offsets[i] : nullptr;
            parts_.layout->replicator().extract(part.plan, unit, fold, momentum(unit), out);
        });
        if (due) {
            in_flight_.keep(step, message);
        }
        return message;
    }

private:
    float * momentum(const Unit & unit) {
        return momentum_[unit.tensor].data() + parts_.units->offset(unit);
    }

    // The others' mean was applied in full where ours had a share: only the difference stays pending.
    void subtract_mean(const Unit & unit, const float * mean) {
        float *       m = momentum(unit);
        const int64_t n = parts_.units->size(unit);
        for (int64_t i = 0; i < n; ++i) {
            m[i] = m[i] - mean[i];
        }
    }

    DecoupledOptions                options_;
    std::vector<std::vector<float>> momentum_;
    InFlight                        in_flight_;
};

}  // namespace

void apply_mean(
    const OptimizerParts &                                             parts,
    const Round &                                                      round,
    bool                                                               sign,
    const std::function<void(const Unit & unit, const float * mean)> & use
) {
    const Inbox inbox(*parts.layout, round, parts.clip_messages);
    if (inbox.empty()) {
        return;
    }
    parts.rule->begin(inbox.lr());
    parts.units->run_owned([&](int i, float * room) {
        const Unit &  unit = parts.units->all()[i];
        const int64_t n    = parts.units->size(unit);
        inbox.merge(i, room);
        use(unit, room);
        if (sign) {
            take_sign(room, n);
        }
        parts.rule->update(unit.tensor, parts.units->offset(unit), n, room, 1.0f);
    });
}

std::unique_ptr<Optimizer> make_decoupled(OptimizerParts parts, const DecoupledOptions & options) {
    return std::make_unique<Decoupled>(std::move(parts), options);
}

}  // namespace gt
