#include "optim/device/momentum-graph.h"

#include "ggml-train/graph/compute.h"
#include "optim/math/dct.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <numeric>

namespace gt {

namespace {

// The largest slice, in elements and in chunks: devices limit the number of workgroups to 16 bits.
constexpr int64_t kSliceElements = 1 << 21, kSliceChunks = 1 << 15;

// A tensor of a backend, for checkpoints.
class TensorMemory : public Memory {
public:
    explicit TensorMemory(ggml_tensor * tensor) : tensor_(tensor) {}

    Floats floats() {
        return {
            {static_cast<float *>(tensor_->data), static_cast<size_t>(ggml_nelements(tensor_))},
            this};
    }
    void read(void * host, const void * at, size_t bytes) override {
        ggml_backend_tensor_get(tensor_, host, offset(at), bytes);
    }
    void write(void * at, const void * host, size_t bytes) override {
        ggml_backend_tensor_set(tensor_, host, offset(at), bytes);
    }

private:
    size_t offset(const void * at) const {
        return static_cast<size_t>(
            static_cast<const char *>(at) - static_cast<const char *>(tensor_->data)
        );
    }

    ggml_tensor * tensor_;
};

// Some rows of chunks of a tensor: N chunks of n elements.
struct Slice {
    size_t        tensor = 0;
    ChunkGrid     grid;
    int64_t       k        = 1;
    ggml_tensor * grad     = nullptr;  // [n N], a view
    ggml_tensor * momentum = nullptr;  // [n, N], a view
    ggml_tensor * place    = nullptr;  // [k, N] I32: input of add
    ggml_tensor * change   = nullptr;  // [1, k, N]: likewise
    ggml_tensor * largest  = nullptr;  // [k, N] I32: output of largest
    ggml_tensor * value    = nullptr;  // [1, k, N]: likewise
    ggml_tensor * squares  = nullptr;  // output of the norm, a value per row of chunks

    int64_t n() const { return grid.chunk_size(); }
    int64_t N() const { return grid.n_chunks(); }
};

class MomentumGraph : public DctMomentum {
public:
    MomentumGraph(
        const Backend &                    backend,
        const std::vector<ggml_tensor *> & grads,
        const std::vector<DctChunks> &     chunks,
        float                              decay
    )
        : backend_(backend), chunks_(chunks) {
        make_state(grads);
        norm_ = make_graph([&](Slice & s) { return add_norm(s); });
        fold_ = make_graph([&](Slice & s) { return add_fold(s, decay); });
        pick_ = make_graph([&](Slice & s) { return add_pick(s); });
        put_  = make_graph([&](Slice & s) { return add_put(s); });
        plan_ = backend_.plan({norm_.graph, fold_.graph, pick_.graph, put_.graph});
    }

    bool is_supported() const {
        return !find_unsupported(backend_, norm_.graph) &&
               !find_unsupported(backend_, fold_.graph) &&
               !find_unsupported(backend_, pick_.graph) && !find_unsupported(backend_, put_.graph);
    }

    double grad_squares() override {
        compute(backend_, norm_.graph);
        double sum = 0.0;
        for (const Slice & slice : slices_) {
            for (const float square : get<float>(slice.squares)) {
                sum += square;
            }
        }
        return sum;
    }

    void fold(float alpha) override {
        ggml_backend_tensor_set(alpha_, &alpha, 0, sizeof(alpha));
        compute(backend_, fold_.graph);
    }

    std::vector<Coefficients> largest() override {
        compute(backend_, pick_.graph);
        std::vector<Coefficients> tensors(chunks_.size());
        for (const Slice & slice : slices_) {
            Coefficients & all   = tensors[slice.tensor];
            const auto     place = get<int32_t>(slice.largest);
            const auto     value = get<float>(slice.value);
            all.place.insert(all.place.end(), place.begin(), place.end());
            all.value.insert(all.value.end(), value.begin(), value.end());
        }
        return tensors;
    }

    void add(const std::vector<Coefficients> & tensors) override {
        size_t at = 0;  // of the slice in its tensor
        for (size_t i = 0; i < slices_.size(); ++i) {
            const Slice & slice = slices_[i];
            at                  = i > 0 && slices_[i - 1].tensor == slice.tensor ? at : 0;
            const auto & from   = tensors[slice.tensor];
            ggml_backend_tensor_set(slice.place, &from.place[at], 0, ggml_nbytes(slice.place));
            ggml_backend_tensor_set(slice.change, &from.value[at], 0, ggml_nbytes(slice.change));
            at += static_cast<size_t>(slice.k * slice.N());
        }
        compute(backend_, put_.graph);
    }

    Floats tensor(size_t i) override { return std::next(momenta_.begin(), i)->floats(); }

private:
    struct Graph {
        ggml_context_ptr ctx;
        ggml_cgraph *    graph = nullptr;
    };

    // Momenta, tables and what the host writes.
    void make_state(const std::vector<ggml_tensor *> & grads) {
        const auto n_slices = [](const ChunkGrid & grid) { return grid.rows / slice_rows(grid); };
        size_t     n        = 1;
        for (const DctChunks & chunks : chunks_) {
            n += 3 + 6 * (1 + static_cast<size_t>(n_slices(chunks.grid)));
        }
        state_ = make_context(n);
        alpha_ = ggml_new_tensor_1d(state_.get(), GGML_TYPE_F32, 1);
        std::vector<ggml_tensor *> momenta;
        for (const DctChunks & chunks : chunks_) {
            const ChunkGrid & grid = chunks.grid;
            momenta.push_back(ggml_new_tensor_1d(state_.get(), GGML_TYPE_F32, grid.rows * grid.cols)
            );
            for (const int64_t side : {grid.side_rows, grid.side_cols}) {
                if (ggml_tensor *& table = tables_[side]; !table) {
                    table = ggml_new_tensor_2d(state_.get(), GGML_TYPE_F32, side, side);
                }
            }
            for (int64_t row = 0; row < grid.rows; row += slice_rows(grid)) {
                slices_.push_back({.tensor = momenta.size() - 1, .grid = grid, .k = chunks.k});
                Slice & slice   = slices_.back();
                slice.grid.rows = std::min(slice_rows(grid), grid.rows - row);
                slice.place = ggml_new_tensor_2d(state_.get(), GGML_TYPE_I32, slice.k, slice.N());
                slice.change =
                    ggml_new_tensor_3d(state_.get(), GGML_TYPE_F32, 1, slice.k, slice.N());
            }
        }
        buffer_ = backend_.allocate(state_.get(), "the momentum");
        // views of memory that exists by now
        views_        = make_context(2 * slices_.size());
        size_t offset = 0;
        for (size_t i = 0; i < slices_.size(); ++i) {
            Slice & slice      = slices_[i];
            offset             = i > 0 && slices_[i - 1].tensor == slice.tensor ? offset : 0;
            const int64_t size = slice.n() * slice.N();
            slice.grad =
                ggml_view_1d(views_.get(), grads[slice.tensor], size, offset * sizeof(float));
            slice.momentum = ggml_view_2d(
                views_.get(), momenta[slice.tensor], slice.n(), slice.N(),
                static_cast<size_t>(slice.n()) * sizeof(float), offset * sizeof(float)
            );
            ggml_backend_view_init(slice.grad);
            ggml_backend_view_init(slice.momentum);
            offset += static_cast<size_t>(size);
        }
        for (const auto & [side, table] : tables_) {
            fill_dct(table);
        }
        for (ggml_tensor * momentum : momenta) {
            momenta_.emplace_back(momentum);
        }
    }

    // Rows of a slice, so that slices begin at multiples of 64 elements: devices want 256 bytes.
    static int64_t slice_rows(const ChunkGrid & grid) {
        const int64_t each = grid.side_rows * grid.cols;  // elements of a row of chunks
        const int64_t unit = 64 / std::gcd<int64_t>(64, each);
        const int64_t most = std::min(kSliceElements / each, kSliceChunks / grid.chunks_per_row());
        return std::min(grid.rows, std::max(unit, most / unit * unit) * grid.side_rows);
    }

    static void fill_dct(ggml_tensor * table) {
        const int64_t      n = table->ne[0];
        std::vector<float> rows(n * n);
        for (int64_t f = 0; f < n; ++f) {
            for (int64_t i = 0; i < n; ++i) {
                const double scale = std::sqrt((f == 0 ? 1.0 : 2.0) / static_cast<double>(n));
                rows[f * n + i]    = static_cast<float>(scale * cos_pi((2 * i + 1) * f, 2 * n));
            }
        }
        ggml_backend_tensor_set(table, rows.data(), 0, ggml_nbytes(table));
    }

    // add(slice) returns what the graph computes last.
    template <class Add>
    Graph make_graph(Add add) {
        const size_t n_nodes = 24 * slices_.size();  // views count
        Graph        made{.ctx = make_context(2 * n_nodes, n_nodes)};
        made.graph = ggml_new_graph_custom(made.ctx.get(), n_nodes, false);
        ctx_       = made.ctx.get();
        for (Slice & slice : slices_) {
            ggml_build_forward_expand(made.graph, add(slice));
        }
        return made;
    }

    ggml_tensor * output(ggml_tensor * tensor) {
        ggml_set_output(tensor);
        return tensor;
    }

    ggml_tensor * add_norm(Slice & s) {
        ggml_tensor * rows = ggml_reshape_2d(
            ctx_, s.grad, s.grid.side_rows * s.grid.cols, s.grid.rows / s.grid.side_rows
        );
        return s.squares = output(ggml_sum_rows(ctx_, ggml_sqr(ctx_, rows)));
    }

    // m = decay·m + alpha·DCT(g)
    ggml_tensor * add_fold(Slice & s, float decay) {
        const int64_t s1 = s.grid.side_rows, s2 = s.grid.side_cols;
        // the gradient, chunk by chunk
        ggml_tensor * x =
            ggml_reshape_4d(ctx_, s.grad, s2, s.grid.chunks_per_row(), s1, s.grid.rows / s1);
        x = ggml_cont(ctx_, ggml_permute(ctx_, x, 0, 2, 1, 3));
        // along the columns [g, s1 N], then down the rows [f, g N]
        x = ggml_mul_mat(ctx_, tables_[s2], ggml_reshape_2d(ctx_, x, s2, s1 * s.N()));
        if (s1 > 1) {
            x = ggml_reshape_3d(ctx_, x, s2, s1, s.N());
            x = ggml_cont(ctx_, ggml_permute(ctx_, x, 1, 0, 2, 3));
            x = ggml_mul_mat(ctx_, tables_[s1], ggml_reshape_2d(ctx_, x, s1, s2 * s.N()));
        }
        x = ggml_mul(ctx_, ggml_reshape_2d(ctx_, x, s.n(), s.N()), alpha_);
        return ggml_cpy(ctx_, ggml_add(ctx_, ggml_scale(ctx_, s.momentum, decay), x), s.momentum);
    }

    ggml_tensor * elements(const Slice & s) {
        return ggml_reshape_3d(ctx_, s.momentum, 1, s.n(), s.N());
    }

    ggml_tensor * add_pick(Slice & s) {
        s.largest = output(ggml_top_k(ctx_, ggml_abs(ctx_, s.momentum), static_cast<int>(s.k)));
        return s.value = output(ggml_get_rows(ctx_, elements(s), s.largest));
    }

    ggml_tensor * add_put(Slice & s) {
        ggml_tensor * sum = ggml_add(ctx_, ggml_get_rows(ctx_, elements(s), s.place), s.change);
        return ggml_set_rows(ctx_, elements(s), sum, s.place);
    }

    template <class T>
    static std::vector<T> get(const ggml_tensor * tensor) {
        std::vector<T> values(ggml_nelements(tensor));
        ggml_backend_tensor_get(tensor, values.data(), 0, ggml_nbytes(tensor));
        return values;
    }

    const Backend &                  backend_;
    std::vector<DctChunks>           chunks_;
    std::vector<Slice>               slices_;
    ggml_context_ptr                 state_, views_;
    ggml_backend_buffer_ptr          buffer_;
    ggml_tensor *                    alpha_ = nullptr;
    std::map<int64_t, ggml_tensor *> tables_;  // DCT matrices by size
    std::list<TensorMemory>          momenta_;
    ggml_context *                   ctx_ = nullptr;  // of the graph that is being made
    Graph                            norm_, fold_, pick_, put_;
    ggml_gallocr_ptr                 plan_;
};

}  // namespace

std::unique_ptr<DctMomentum> make_momentum_graph(
    const Backend &                    backend,
    const std::vector<ggml_tensor *> & grads,
    const std::vector<DctChunks> &     chunks,
    float                              decay
) {
    const bool fits = std::all_of(chunks.begin(), chunks.end(), [](const DctChunks & c) {
        return std::max(c.grid.side_rows, c.grid.side_cols) <= kLongestSide;
    });
    if (!fits) {
        return nullptr;
    }
    auto momentum = std::make_unique<MomentumGraph>(backend, grads, chunks, decay);
    return momentum->is_supported() ? std::move(momentum) : nullptr;
}

}  // namespace gt
