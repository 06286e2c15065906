#include "optim/math/transform.h"

#include <cstring>

namespace gt {

// Eight floats, for moving 8 x 8 tiles; no arithmetic.
typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));

static void transpose_tile(const float * from, int64_t from_stride, float * to, int64_t to_stride) {
    Eight a[8], b[8];
    for (int i = 0; i < 8; ++i) {
        a[i] = *reinterpret_cast<const Eight *>(from + i * from_stride);
    }
    // pairs, then fours, then halves
    for (int i = 0; i < 8; i += 2) {
        b[i]     = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; ++j) {
            a[i + 2 * j] =
                __builtin_shufflevector(b[i + j], b[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
            a[i + 2 * j + 1] =
                __builtin_shufflevector(b[i + j], b[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<Eight *>(to + i * to_stride) =
            __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *reinterpret_cast<Eight *>(to + (i + 4) * to_stride) =
            __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

// to[c][r] = from[r][c]
static void transpose(
    const float * from,
    int64_t       rows,
    int64_t       cols,
    int64_t       from_stride,
    float *       to,
    int64_t       to_stride
) {
    const int64_t full_rows = rows / 8 * 8, full_cols = cols / 8 * 8;
    for (int64_t r = 0; r < full_rows; r += 8) {
        for (int64_t c = 0; c < full_cols; c += 8) {
            transpose_tile(
                from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride
            );
        }
    }
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = r < full_rows ? full_cols : 0; c < cols; ++c) {
            to[c * to_stride + r] = from[r * from_stride + c];
        }
    }
}

static void copy_rows(
    const float * from,
    int64_t       from_stride,
    float *       to,
    int64_t       to_stride,
    int64_t       rows,
    int64_t       cols
) {
    for (int64_t r = 0; r < rows; ++r) {
        std::memcpy(to + r * to_stride, from + r * from_stride, cols * sizeof(float));
    }
}

// --- a chunk of several rows -------------------------------------------------------------------------

class Dct2 : public Transform {
public:
    explicit Dct2(const ChunkGrid & grid)
        : rows_(grid.side_rows), cols_(grid.side_cols), down_(rows_), along_(cols_),
          row_width_(padded(cols_)), col_width_(padded(rows_)), cosine_(cols_ * row_width_, 0.0f) {
        for (int64_t g = 0; g < cols_; ++g) {
            for (int64_t c = 0; c < cols_; ++c) {
                cosine_[g * row_width_ + c] =
                    static_cast<float>(cos_pi((2 * c + 1) * g, 2 * cols_));
            }
        }
    }

    int64_t batch() const override { return 1; }
    int64_t scratch_size() const override {
        return std::max(rows_, col_width_) * row_width_ +
               std::max(cols_ * col_width_, rows_ + 3 * rows_ * cols_);
    }
    float factor() const override { return down_.scale() * along_.scale(); }

    void
    forward(const float * x, int64_t stride, int64_t, float * out, float * scratch) const override {
        float *       a     = scratch;  // rows x row_width, in room for more
        float *       b     = scratch + col_width_ * row_width_;  // cols x col_width
        const float * from  = x;
        int64_t       pitch = stride;
        if (row_width_ != cols_) {
            std::memset(a, 0, rows_ * row_width_ * sizeof(float));
            copy_rows(x, stride, a, row_width_, rows_, cols_);
            from  = a;
            pitch = row_width_;
        }
        down_.forward(from, pitch, a, row_width_, row_width_);
        if (col_width_ == rows_) {
            transpose(a, rows_, cols_, row_width_, out, rows_);
            along_.forward(out, rows_, out, rows_, rows_);
            return;
        }
        std::memset(a + rows_ * row_width_, 0, (col_width_ - rows_) * row_width_ * sizeof(float));
        transpose(a, col_width_, cols_, row_width_, b, col_width_);
        along_.forward(b, col_width_, b, col_width_, col_width_);
        copy_rows(b, col_width_, out, rows_, cols_, rows_);
    }

    void restore(const Sparse * chunk, int64_t, float * x, int64_t stride, float * scratch)
        const override {
        float * a = scratch;
        // along the columns by coefficient, since there are few; then down all columns
        along_rows(*chunk, a, scratch + std::max(rows_, col_width_) * row_width_);
        if (row_width_ == cols_) {
            down_.inverse(a, row_width_, x, stride, row_width_);
            return;
        }
        down_.inverse(a, row_width_, a, row_width_, row_width_);
        copy_rows(a, row_width_, x, stride, rows_, cols_);
    }

private:
    // Row f of `a` = the sum over the coefficients (f, g), g ascending, of value times cosine g.
    // lists: memory for rows_ + 3 integers or floats per coefficient.
    void along_rows(const Sparse & chunk, float * a, float * lists) const {
        constexpr int64_t kBlock = 4 * kLanes;
        const auto        n      = static_cast<int32_t>(chunk.index.size());
        const auto rows = static_cast<int32_t>(rows_), width = static_cast<int32_t>(row_width_);
        // linked lists of the coefficients of each row: the first, and the next of each
        int32_t *   first  = reinterpret_cast<int32_t *>(lists);
        int32_t *   next   = first + rows;
        int32_t *   cosine = next + n;
        float *     value  = reinterpret_cast<float *>(cosine + n);
        const float scale  = factor();
        std::fill(first, first + rows, -1);
        for (int32_t i = n - 1; i >= 0; --i) {
            const int32_t g = chunk.index[i] / rows, f = chunk.index[i] % rows;
            value[i]  = chunk.value[i] * scale * (g == 0 && cols_ > 1 ? kHalfRoot : 1.0f);
            cosine[i] = g * width;
            next[i]   = first[f];
            first[f]  = i;
        }
        for (int32_t f = 0; f < rows; ++f) {
            float * row = a + f * row_width_;
            int64_t c   = 0;
            for (; c + kBlock <= row_width_; c += kBlock) {
                Lanes sum[4] = {};
                for (int32_t i = first[f]; i >= 0; i = next[i]) {
                    const float * at = cosine_.data() + cosine[i] + c;
                    for (int j = 0; j < 4; ++j) {
                        sum[j] = sum[j] + value[i] * load(at + j * kLanes);
                    }
                }
                for (int j = 0; j < 4; ++j) {
                    store(row + c + j * kLanes, sum[j]);
                }
            }
            for (; c < row_width_; c += kLanes) {
                Lanes sum = {};
                for (int32_t i = first[f]; i >= 0; i = next[i]) {
                    sum = sum + value[i] * load(cosine_.data() + cosine[i] + c);
                }
                store(row + c, sum);
            }
        }
    }

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
        along_.forward(scratch, kRowLanes, scratch, kRowLanes, kRowLanes);
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
        along_.inverse(scratch, kRowLanes, scratch, kRowLanes, kRowLanes);
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
