// optim/rules/adamw.cpp — AdamW (arXiv 1711.05101), one pass over weights, moments and update.
//
//   p *= 1 - lr wd;  m = b1 m + (1 - b1) u;  v = b2 v + (1 - b2) u²
//   p -= lr / (1 - b1^t) · m / (sqrt(v / (1 - b2^t)) + eps)
#include "optim/rules/moments.h"
#include "optim/rules/rule.h"

#include <algorithm>
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

struct Factors {
    float keep, rate, root, scale;  // of the weight, the step, v's root, the update
};

void step_elements(
    const AdamOptions & options,
    const Factors &     f,
    int64_t             n,
    const float * __restrict u,
    float * __restrict p,
    float * __restrict m,
    float * __restrict v
) {
    const float b1 = options.beta1, b2 = options.beta2, eps = options.eps;
    const float a1 = 1.0f - b1, a2 = 1.0f - b2;
    // Moments below kTiny are flushed to zero: denormals are slow.
    constexpr float kTiny = 1e-30f;
    for (int64_t i = 0; i < n; ++i) {
        const float g  = u[i] * f.scale;
        float       mi = b1 * m[i] + a1 * g;
        float       vi = b2 * v[i] + a2 * (g * g);
        mi             = std::fabs(mi) < kTiny ? 0.0f : mi;
        vi             = vi < kTiny ? 0.0f : vi;
        m[i]           = mi;
        v[i]           = vi;
        p[i]           = p[i] * f.keep - f.rate * (mi / (std::sqrt(vi) * f.root + eps));
    }
}

// One row whose moments have 8 bits.
void step_row(
    const AdamOptions & options,
    const Factors &     f,
    int64_t             cols,
    const float *       u,
    float *             p,
    float *             m,
    float *             v
) {
    const int64_t n_blocks = cuda::moment_blocks(cols);
    auto * const  m_codes  = reinterpret_cast<uint8_t *>(m + n_blocks);
    auto * const  v_codes  = reinterpret_cast<uint8_t *>(v + n_blocks);
    float         first[cuda::kMomentBlock], second[cuda::kMomentBlock];
    for (int64_t b = 0; b < n_blocks; ++b) {
        const int64_t at = b * cuda::kMomentBlock;
        const int64_t n  = std::min(cuda::kMomentBlock, cols - at);
        decode_moments(cuda::kFirstMoment, m[b], m_codes + at, n, first);
        decode_moments(cuda::kSecondMoment, v[b], v_codes + at, n, second);
        step_elements(options, f, n, u + at, p + at, first, second);
        m[b] = encode_moments(cuda::kFirstMoment, first, n, m_codes + at);
        v[b] = encode_moments(cuda::kSecondMoment, second, n, v_codes + at);
    }
}

class AdamW : public UpdateRule {
public:
    AdamW(std::vector<RuleTensor> tensors, const AdamOptions & options)
        : tensors_(std::move(tensors)), options_(options) {
        for (const RuleTensor & tensor : tensors_) {
            first_.emplace_back(moments_size(options, tensor), 0.0f);
            second_.emplace_back(moments_size(options, tensor), 0.0f);
        }
    }

    void begin(float lr) override {
        lr_   = lr;
        step_ = adam_step(options_, ++t_, lr);
    }

    void update(int tensor, int64_t offset, int64_t n, const float * u, float scale) override {
        const RuleTensor & t = tensors_[tensor];
        const Factors      f{1.0f - lr_ * t.lr * t.decay, step_.rate * t.lr, step_.root, scale};
        float *            p = t.weight.data() + offset;
        float *            m = first_[tensor].data();
        float *            v = second_[tensor].data();
        if (!has_q8_moments(options_, t)) {
            step_elements(options_, f, n, u, p, m + offset, v + offset);
            return;
        }
        for (int64_t i = 0; i < n; i += t.cols) {
            const int64_t at = q8_moments_before(t, offset + i);
            step_row(options_, f, t.cols, u + i, p + i, m + at, v + at);
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

bool has_q8_moments(const AdamOptions & options, const RuleTensor & tensor) {
    constexpr int64_t kFewColumns = 32;  // not worth a scale
    return options.q8 && tensor.kind != ParamKind::vector && tensor.cols >= kFewColumns;
}

size_t moments_size(const AdamOptions & options, const RuleTensor & tensor) {
    return has_q8_moments(options, tensor)
               ? static_cast<size_t>(tensor.rows * cuda::moment_floats(tensor.cols))
               : tensor.weight.size();
}

int64_t q8_moments_before(const RuleTensor & tensor, int64_t weight) {
    GT_CHECK(weight % tensor.cols == 0, "moments of 8 bits need whole rows");
    return weight / tensor.cols * cuda::moment_floats(tensor.cols);
}

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
