// optim/rules/sgd.cpp — p = (1 - lr wd) p - lr u. With the sign on, u is -1, 0 or 1: DeMo.
#include "optim/rules/rule.h"

namespace gt {

namespace {

class Sgd : public UpdateRule {
public:
    explicit Sgd(std::vector<RuleTensor> tensors) : tensors_(std::move(tensors)) {}

    void begin(float lr) override { lr_ = lr; }

    void update(int tensor, int64_t offset, int64_t n, const float * u, float scale) override {
        const RuleTensor & t    = tensors_[tensor];
        float * const      p    = t.weight.data() + offset;
        const float        rate = lr_ * t.lr;
        const float        keep = 1.0f - rate * t.decay, step = rate * scale;
        for (int64_t i = 0; i < n; ++i) {
            p[i] = p[i] * keep - step * u[i];
        }
    }

    void add_state(OptimizerState &, bool) override {}

private:
    std::vector<RuleTensor> tensors_;
    float                   lr_ = 0.0f;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(std::vector<RuleTensor> tensors) {
    return std::make_unique<Sgd>(std::move(tensors));
}

}  // namespace gt
