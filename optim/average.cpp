#include "optim/average.h"

#include <algorithm>

namespace gt {

namespace {

class Averaged : public Optimizer {
public:
    Averaged(
        std::unique_ptr<Optimizer> inner,
        std::vector<ParamView>     params,
        float                      decay,
        bool                       always,
        Workers &                  workers
    )
        : inner_(std::move(inner)), decay_(decay), always_(always), workers_(workers) {
        const OptimizerState state = inner_->state();
        for (const ParamView & param : params) {
            const Floats weight{param.weight, param.device};
            tensors_.push_back({param.name, weight, shared_weight(state, weight), weight.read()});
        }
    }

    Prepared prepare(uint64_t step, float lr, const Clip & clip) override {
        return inner_->prepare(step, lr, clip);
    }

    void apply(const Round & round) override {
        inner_->apply(round);
        if (!always_ && round.messages.empty()) {
            return;
        }
        const auto  n    = static_cast<double>(n_updates_++);
        const auto  d    = static_cast<float>(std::min<double>(decay_, (1.0 + n) / (10.0 + n)));
        const float rate = 1.0f - d;
        for (Tensor & tensor : tensors_) {
            const HostView view(tensor.source);
            const float *  from = view.values().data();
            float *        to   = tensor.average.data();
            workers_.split(
                static_cast<int64_t>(tensor.average.size()),
                [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                        to[i] += rate * (from[i] - to[i]);
                    }
                }
            );
        }
    }

    void take_back(uint64_t step) override { inner_->take_back(step); }
    void drop_residual() override { inner_->drop_residual(); }

    OptimizerState state() override {
        OptimizerState state = inner_->state();
        for (Tensor & tensor : tensors_) {
            state.tensors.push_back(
                {.name = kAveragePrefix + tensor.name, .values = tensor.average, .shared = true}
            );
        }
        state.counters.push_back({.name = "ema-updates", .value = &n_updates_, .shared = true});
        return state;
    }

    void swap_average() override {
        for (Tensor & tensor : tensors_) {
            std::vector<float> weights = tensor.weight.read();
            tensor.weight.write(tensor.average);
            std::copy(weights.begin(), weights.end(), tensor.average.begin());
        }
    }

private:
    struct Tensor {
        std::string        name;
        Floats             weight;
        Floats             source;  // equal on all hosts: the weight itself, or its anchor
        std::vector<float> average;
    };

    // The shared state that a weight is derived from (local steps), or the weight.
    static Floats shared_weight(const OptimizerState & state, const Floats & weight) {
        for (const StateTensor & tensor : state.tensors) {
            for (const Floats & derived : tensor.derived) {
                if (tensor.shared && derived.values.data() == weight.values.data()) {
                    return tensor.floats();
                }
            }
        }
        return weight;
    }

    std::unique_ptr<Optimizer> inner_;
    float                      decay_;
    bool                       always_;
    Workers &                  workers_;
    std::vector<Tensor>        tensors_;
    uint64_t                   n_updates_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> with_average(
    std::unique_ptr<Optimizer> inner,
    std::vector<ParamView>     params,
    float                      decay,
    bool                       always,
    Workers &                  workers
) {
    return std::make_unique<Averaged>(std::move(inner), std::move(params), decay, always, workers);
}

}  // namespace gt
