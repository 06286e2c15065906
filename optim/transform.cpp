#include "optim/transform.h"

#include <cstring>

namespace gt {

static constexpr float kHalfRoot = 0.70710678118654752440f;

// to[c][r] = from[r][c], in tiles that stay in the first cache
static void transpose(
    const float * from, int64_t rows, int64_t cols, int64_t from_stride, float * to, int64_t to_stride
) {
    constexpr int64_t kTile = 16;
    for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
        const int64_t r1 = std::min(rows, r0 + kTile);
        for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
            const int64_t c1 = std::min(cols, c0 + kTile);
            for (int64_t c = c0; c < c1; ++c) {
                for (int64_t r = r0; r < r1; ++r) {
                    to[c * to_stride + r] = from[r * from_stride + c];
                }
            }
        }
    }
}

static void copy_rows(
    const float * from, int64_t from_stride, float * to, int64_t to_stride, int64_t rows, int64_t cols
) {
    for (int64_t r = 0; r < rows; ++r) {
        std::memcpy(to + r * to_stride, from + r * from_stride, cols * sizeof(float));
    }
}

// --- a chunk of several rows -------------------------------------------------------------------------

class Dct2 : public Transform {
public:
    explicit Dct2(const ChunkGrid & grid) :
        rows_(grid.side_rows), cols_(grid.side_cols), down_(rows_), along_(cols_),
        row_width_(padded(cols_)), col_width_(padded(rows_)), cosine_(cols_ * row_width_, 0.0f) {
        for (int64_t g = 0; g < cols_; ++g) {
            for (int64_t c = 0; c < cols_; ++c) {
                cosine_[g * row_width_ + c] =
                    static_cast<float>(cos_pi((2 * c + 1) * g, 2 * cols_));
            }
        }
    }

    int64_t batch() const override { return 1; }
    int64_t scratch_size() const override { return rows_ * row_width_ + cols_ * col_width_; }
    float   factor() const override { return down_.scale() * along_.scale(); }

    void forward(const float * x, int64_t stride, int64_t, float * out, float * scratch)
        const override {
        float * a = scratch;                      // rows x row_width
        float * b = scratch + rows_ * row_width_;  // cols x col_width
        if (row_width_ != cols_) {
            std::memset(a, 0, rows_ * row_width_ * sizeof(float));
        }
        if (col_width_ != rows_) {
            std::memset(b, 0, cols_ * col_width_ * sizeof(float));
        }
        copy_rows(x, stride, a, row_width_, rows_, cols_);
        down_.forward(a, row_width_);
        if (col_width_ == rows_) {
            b = out;
        }
        transpose(a, rows_, cols_, row_width_, b, col_width_);
        along_.forward(b, col_width_);
        if (b != out) {
            copy_rows(b, col_width_, out, rows_, cols_, rows_);
        }
    }

    void restore(const Sparse * chunk, int64_t, float * x, int64_t stride, float * scratch)
        const override {
        float * a = scratch;
        std::memset(a, 0, rows_ * row_width_ * sizeof(float));
        // along the columns coefficient by coefficient, for they are few; then down all columns
        const float scale = factor();
        const auto  n     = static_cast<int64_t>(chunk->index.size());
        for (int64_t i = 0; i < n; ++i) {
            const int64_t g = chunk->index[i] / rows_, f = chunk->index[i] % rows_;
            const float   v      = chunk->value[i] * scale * (g == 0 && cols_ > 1 ? kHalfRoot : 1.0f);
            float *       row    = a + f * row_width_;
            const float * cosine = cosine_.data() + g * row_width_;
            for (int64_t c = 0; c < row_width_; ++c) {
                row[c] = row[c] + v * cosine[c];
            }
        }
        down_.inverse(a, row_width_);
        copy_rows(a, row_width_, x, stride, rows_, cols_);
    }

private:
    int64_t            rows_, cols_;
    Dct                down_, along_;
    int64_t            row_width_, col_width_;
    std::vector<float> cosine_;  // cos(pi (2c + 1) g / 2 cols), row g
};

// --- chunks of one row: sixteen side by side, one per lane ---------------------------------------------

class Dct1 : public Transform {
public:
    explicit Dct1(const ChunkGrid & grid) : n_(grid.side_cols), along_(n_) {}

    int64_t batch() const override { return kRowLanes; }
    int64_t scratch_size() const override { return n_ * kRowLanes; }
    float   factor() const override { return along_.scale(); }

    void forward(const float * x, int64_t, int64_t n_chunks, float * out, float * scratch)
        const override {
        std::memset(scratch, 0, n_ * kRowLanes * sizeof(float));
        transpose(x, n_chunks, n_, n_, scratch, kRowLanes);
        along_.forward(scratch, kRowLanes);
        transpose(scratch, n_, n_chunks, kRowLanes, out, n_);
    }

    void restore(const Sparse * chunks, int64_t n_chunks, float * x, int64_t, float * scratch)
        const override {
        std::memset(scratch, 0, n_ * kRowLanes * sizeof(float));
        for (int64_t b = 0; b < n_chunks; ++b) {
            const auto n = static_cast<int64_t>(chunks[b].index.size());
            for (int64_t i = 0; i < n; ++i) {
                scratch[chunks[b].index[i] * kRowLanes + b] = chunks[b].value[i] * factor();
            }
        }
        along_.inverse(scratch, kRowLanes);
        transpose(scratch, n_, n_chunks, kRowLanes, x, n_);
    }

private:
    int64_t n_;
    Dct     along_;
};

// --- no transform --------------------------------------------------------------------------------------

class Identity : public Transform {
public:
    explicit Identity(const ChunkGrid & grid) : rows_(grid.side_rows), cols_(grid.side_cols) {}

    int64_t batch() const override { return 1; }
    int64_t scratch_size() const override { return 1; }
    float   factor() const override { return 1.0f; }

    void forward(const float * x, int64_t stride, int64_t, float * out, float *) const override {
        copy_rows(x, stride, out, cols_, rows_, cols_);
    }

    void restore(const Sparse * chunk, int64_t, float * x, int64_t stride, float *) const override {
        for (int64_t r = 0; r < rows_; ++r) {
            std::memset(x + r * stride, 0, cols_ * sizeof(float));
        }
        for (size_t i = 0; i < chunk->index.size(); ++i) {
            x[chunk->index[i] / cols_ * stride + chunk->index[i] % cols_] = chunk->value[i];
        }
    }

private:
    int64_t rows_, cols_;
};

std::unique_ptr<Transform> make_dct_transform(const ChunkGrid & grid) {
    if (grid.side_rows == 1) {
        return std::make_unique<Dct1>(grid);
    }
    return std::make_unique<Dct2>(grid);
}

std::unique_ptr<Transform> make_identity_transform(const ChunkGrid & grid) {
    return std::make_unique<Identity>(grid);
}

}  // namespace gt
