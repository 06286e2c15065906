// optim/rules/muon.cpp — Muon: matrices are updated by the nearest orthogonal matrix (five Newton-Schulz
// steps), other tensors by the sign of the update.
//
// Elements of an orthogonal matrix have the RMS 1 / sqrt(longer side); times 0.2 sqrt(longer side) they
// match a typical AdamW update (arXiv 2502.16982), so rules can share one learning rate.
#include "ggml-train/cuda/muon.h"

#include "optim/math/fixed-gemm.h"
#include "optim/math/squares.h"
#include "optim/rules/rule.h"

#include <algorithm>
#include <cmath>

namespace gt {

namespace {

// Divides x by its norm.
void normalise(std::span<float> x) {
    const double norm2   = sum_of_squares(x.data(), static_cast<int64_t>(x.size()));
    const float  inverse = static_cast<float>(1.0 / (std::sqrt(norm2) + 1e-20));
    for (float & v : x) {
        v = v * inverse;
    }
}

// Replaces x by roughly U Vᵀ of its singular value decomposition. REQUIRES: rows <= cols, norm 1.
void orthogonalise(PaddedMatrix & x, int n_steps) {
    const int64_t size = x.rows * x.stride;
    float *       v    = x.data.data();
    PaddedMatrix  a(x.rows, x.rows), square(x.rows, x.rows), next(x.rows, x.cols);
    float *       pa = a.data.data();
    for (int step = 0; step < n_steps; ++step) {
        multiply(x, transposed(x), true, a);
        multiply(a, a, true, square);
        for (int64_t i = 0; i < a.rows * a.stride; ++i) {
            pa[i] = -4.7750f * pa[i] + 2.0315f * square.data.data()[i];
        }
        multiply(a, x, false, next);
        for (int64_t i = 0; i < size; ++i) {
            v[i] = 3.4445f * v[i] + next.data.data()[i];
        }
    }
}

class Muon : public UpdateRule {
public:
    Muon(std::vector<RuleTensor> tensors, const MuonOptions & options)
        : tensors_(std::move(tensors)), options_(options) {
        for (const RuleTensor & tensor : tensors_) {
            momentum_.emplace_back(options.momentum > 0.0f ? tensor.weight.size() : 0, 0.0f);
        }
    }

    void begin(float lr) override { lr_ = lr; }

    void update(int tensor, int64_t offset, int64_t n, const float * u, float scale) override {
        const RuleTensor & t = tensors_[tensor];
        std::vector<float> x(u, u + n);
        for (float & v : x) {
            v = v * scale;
        }
        if (options_.momentum > 0.0f) {
            float * m = momentum_[tensor].data() + offset;
            for (int64_t i = 0; i < n; ++i) {
                m[i] = options_.momentum * m[i] + x[i];
                x[i] = x[i] + options_.momentum * m[i];
            }
        }
        float grow = 1.0f;
        if (t.kind == ParamKind::matrix) {
            GT_CHECK(n == t.rows * t.cols, "muon needs whole matrices");
            normalise(x);
            to_orthogonal(t.rows, t.cols, x.data());
            grow = muon_growth(t);
        } else {
            for (float & v : x) {
                v = v > 0.0f ? 1.0f : v < 0.0f ? -1.0f : 0.0f;
            }
        }
        const float rate = lr_ * t.lr, keep = 1.0f - rate * t.decay, step = rate * grow;
        float *     p = t.weight.data() + offset;
        for (int64_t i = 0; i < n; ++i) {
            p[i] = p[i] * keep - step * x[i];
        }
    }

    std::span<float> momentum(int tensor) override { return momentum_[tensor]; }

    void add_state(OptimizerState & state, bool shared) override {
        for (size_t i = 0; i < tensors_.size() && options_.momentum > 0.0f; ++i) {
            state.tensors.push_back({"muon.m." + tensors_[i].name, momentum_[i], shared});
        }
    }

private:
    // Replaces x [cols, rows], of norm 1, by the nearest orthogonal matrix.
    void to_orthogonal(int64_t rows, int64_t cols, float * x) const {
        PaddedMatrix given(rows, cols);
        for (int64_t r = 0; r < rows; ++r) {
            std::copy(x + r * cols, x + (r + 1) * cols, given.row(r));
        }
        const bool   tall = rows > cols;
        PaddedMatrix flat = tall ? transposed(given) : std::move(given);
        orthogonalise(flat, options_.n_steps);
        const PaddedMatrix result = tall ? transposed(flat) : std::move(flat);
        for (int64_t r = 0; r < rows; ++r) {
            std::copy(result.row(r), result.row(r) + cols, x + r * cols);
        }
    }

    std::vector<RuleTensor>         tensors_;
    MuonOptions                     options_;
    std::vector<std::vector<float>> momentum_;
    float                           lr_ = 0.0f;
};

}  // namespace

void correct_momentum(std::span<float> m, float c, const float * d) {
    const auto   n    = static_cast<int64_t>(m.size());
    const double mean = sum_of_squares(m.data(), n) / static_cast<double>(n);
    const float  unit = c * static_cast<float>(std::sqrt(mean));
    for (int64_t i = 0; i < n; ++i) {
        m[i] = m[i] + unit * d[i];
    }
}

float muon_growth(const RuleTensor & tensor) {
    return 0.2f * std::sqrt(static_cast<float>(std::max(tensor.rows, tensor.cols)));
}

std::unique_ptr<UpdateRule>
make_muon(std::vector<RuleTensor> tensors, const MuonOptions & options) {
    return std::make_unique<Muon>(std::move(tensors), options);
}

}  // namespace gt
