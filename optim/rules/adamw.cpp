// optim/rules/adamw.cpp — AdamW (arXiv 1711.05101), one pass over weights, moments and update.
//
//   p *= 1 - lr wd;  m = b1 m + (1 - b1) u;  v = b2 v + (1 - b2) u²
//   p -= lr / (1 - b1^t) · m / (sqrt(v / (1 - b2^t)) + eps)
#include "optim/rules/rule.h"

#include <cmath>

namespace gt {

namespace {

// b^t by squaring: the same bits on every machine, unlike std::pow.
double power(double b, uint64_t t) {
    double result = 1.0;
    for (; t != 0; t >>= 1) {
        if (t & 1) {
            result *= b;
        }
        b *= b;
    }
    return result;
}

class AdamW : public UpdateRule {
public:
    AdamW(std::vector<RuleTensor> tensors, const AdamOptions & options)
        : tensors_(std::move(tensors)), options_(options) {
        for (const RuleTensor & tensor : tensors_) {
            first_.emplace_back(tensor.weight.size(), 0.0f);
            second_.emplace_back(tensor.weight.size(), 0.0f);
        }
    }

    void begin(float lr) override {
        lr_   = lr;
        step_ = adam_step(options_, ++t_, lr);
    }

    void update(int tensor, int64_t offset, int64_t n, const float * u, float scale) override {
        const RuleTensor & t = tensors_[tensor];
        float * __restrict p = t.weight.data() + offset;
        float * __restrict m = first_[tensor].data() + offset;
        float * __restrict v = second_[tensor].data() + offset;
        const float keep = 1.0f - lr_ * t.lr * t.decay, rate = step_.rate * t.lr;
        const float root = step_.root;
        const float b1 = options_.beta1, b2 = options_.beta2, eps = options_.eps;
        const float a1 = 1.0f - b1, a2 = 1.0f - b2;
        // Moments below kTiny are flushed to zero: denormals are slow.
        constexpr float kTiny = 1e-30f;
        for (int64_t i = 0; i < n; ++i) {
            const float g  = u[i] * scale;
            float       mi = b1 * m[i] + a1 * g;
            float       vi = b2 * v[i] + a2 * (g * g);
            mi             = std::fabs(mi) < kTiny ? 0.0f : mi;
            vi             = vi < kTiny ? 0.0f : vi;
            m[i]           = mi;
            v[i]           = vi;
            p[i]           = p[i] * keep - rate * (mi / (std::sqrt(vi) * root + eps));
        }
    }

    void add_state(OptimizerState & state, bool shared) override {
        for (size_t i = 0; i < tensors_.size(); ++i) {
            state.tensors.push_back({"adamw.m." + tensors_[i].name, first_[i], shared});
            state.tensors.push_back({"adamw.v." + tensors_[i].name, second_[i], shared});
        }
        state.counters.push_back({"adamw.t", &t_, shared});
    }

private:
    std::vector<RuleTensor>         tensors_;
    AdamOptions                     options_;
    std::vector<std::vector<float>> first_, second_;
    uint64_t                        t_  = 0;
    float                           lr_ = 0.0f;
    AdamStep                        step_;
};

}  // namespace

AdamStep adam_step(const AdamOptions & options, uint64_t t, float lr) {
    const double correct1 = 1.0 - power(options.beta1, t);
    const double correct2 = 1.0 - power(options.beta2, t);
    return {
        .rate = static_cast<float>(lr / correct1),
        .root = static_cast<float>(1.0 / std::sqrt(correct2))};
}

std::unique_ptr<UpdateRule>
make_adamw(std::vector<RuleTensor> tensors, const AdamOptions & options) {
    return std::make_unique<AdamW>(std::move(tensors), options);
}

}  // namespace gt
