// optim/muon.cpp — matrices move by the orthogonal matrix nearest to the update (Muon: Newton-Schulz
// in five steps), everything else by the sign of it.
//
// Products sum in ascending order, one column per lane, so that all hosts get the same bits.
#include "optim/lanes.h"
#include "optim/rule.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gt {

namespace {

using Matrix = std::vector<float>;

// c = a · b, with a: n x k, b: k x m, all row-major. Sums over k ascending, in blocks of rows of b
// that stay in cache; the order of a sum does not depend on the blocks.
void multiply(const float * a, const float * b, int64_t n, int64_t k, int64_t m, float * c) {
    constexpr int64_t kDeep = 64;
    std::memset(c, 0, n * m * sizeof(float));
    for (int64_t l0 = 0; l0 < k; l0 += kDeep) {
        const int64_t l1 = std::min(k, l0 + kDeep);
        for (int64_t i = 0; i < n; ++i) {
            float * __restrict out = c + i * m;
            int64_t l              = l0;
            for (; l + 4 <= l1; l += 4) {
                const float   a0 = a[i * k + l], a1 = a[i * k + l + 1];
                const float   a2 = a[i * k + l + 2], a3 = a[i * k + l + 3];
                const float * b0 = b + l * m;
                for (int64_t j = 0; j < m; ++j) {
                    float sum = out[j] + a0 * b0[j];
                    sum       = sum + a1 * b0[m + j];
                    sum       = sum + a2 * b0[2 * m + j];
                    out[j]    = sum + a3 * b0[3 * m + j];
                }
            }
            for (; l < l1; ++l) {
                const float a0 = a[i * k + l];
                for (int64_t j = 0; j < m; ++j) {
                    out[j] = out[j] + a0 * b[l * m + j];
                }
            }
        }
    }
}

Matrix transposed(const float * x, int64_t rows, int64_t cols) {
    Matrix result(rows * cols);
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
            result[c * rows + r] = x[r * cols + c];
        }
    }
    return result;
}

// Replaces x, rows <= cols, by U Vᵀ of its singular value decomposition, roughly.
void orthogonalise(Matrix & x, int64_t rows, int64_t cols, int n_steps) {
    double norm2 = 0.0;
    for (const float v : x) {
        norm2 += static_cast<double>(v) * v;
    }
    const float inverse = static_cast<float>(1.0 / (std::sqrt(norm2) + 1e-20));
    for (float & v : x) {
        v = v * inverse;
    }
    Matrix a(rows * rows), square(rows * rows), next(rows * cols);
    for (int step = 0; step < n_steps; ++step) {
        multiply(x.data(), transposed(x.data(), rows, cols).data(), rows, cols, rows, a.data());
        multiply(a.data(), a.data(), rows, rows, rows, square.data());
        for (int64_t i = 0; i < rows * rows; ++i) {
            a[i] = -4.7750f * a[i] + 2.0315f * square[i];
        }
        multiply(a.data(), x.data(), rows, rows, cols, next.data());
        for (int64_t i = 0; i < rows * cols; ++i) {
            x[i] = 3.4445f * x[i] + next[i];
        }
    }
}

class Muon : public Rule {
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
        Matrix             x(u, u + n);
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
            GT_CHECK(n == t.rows * t.cols, "muon needs a matrix in one piece");
            const bool tall = t.rows > t.cols;
            if (tall) {
                x = transposed(x.data(), t.rows, t.cols);
            }
            const int64_t small = std::min(t.rows, t.cols), large = std::max(t.rows, t.cols);
            orthogonalise(x, small, large, options_.n_steps);
            if (tall) {
                x = transposed(x.data(), t.cols, t.rows);
            }
            const float aspect = static_cast<float>(t.rows) / static_cast<float>(t.cols);
            grow               = std::sqrt(std::max(1.0f, aspect));
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

    void add_state(OptimizerState & state, bool shared) override {
        for (size_t i = 0; i < tensors_.size() && options_.momentum > 0.0f; ++i) {
            state.tensors.push_back({"muon.m." + tensors_[i].name, momentum_[i], shared});
        }
    }

private:
    std::vector<RuleTensor> tensors_;
    MuonOptions             options_;
    std::vector<Matrix>     momentum_;
    float                   lr_ = 0.0f;
};

}  // namespace

std::unique_ptr<Rule> make_muon(std::vector<RuleTensor> tensors, const MuonOptions & options) {
    return std::make_unique<Muon>(std::move(tensors), options);
}

}  // namespace gt
