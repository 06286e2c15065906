#include "ggml-train/shard/shard.h"

#include <algorithm>

namespace gt {

int64_t FlatTensor::cols() const {
    const int64_t n = shape.ne[0] * shape.ne[1] * shape.ne[2] * shape.ne[3];
    return n / shape.row_end;
}

std::vector<int64_t> cut_flat(const std::vector<FlatTensor> & tensors, int64_t size, int n) {
    std::vector<int64_t> places;  // offsets at which a range may begin
    for (const FlatTensor & tensor : tensors) {
        for (int64_t row = 0; row < tensor.shape.row_end; row += tensor.cut) {
            places.push_back(tensor.begin + row * tensor.cols());
        }
    }
    std::vector<int64_t> offsets{0};
    for (int r = 1; r < n; ++r) {
        const int64_t ideal = size * r / n;
        const auto    after = std::lower_bound(places.begin(), places.end(), ideal);
        int64_t       best  = after == places.end() ? size : *after;
        if (after != places.begin() && ideal - after[-1] < best - ideal) {
            best = after[-1];
        }
        offsets.push_back(std::max(best, offsets.back()));
    }
    offsets.push_back(size);
    return offsets;
}

std::pair<int64_t, int64_t> rows_in(const FlatTensor & tensor, int64_t begin, int64_t end) {
    const int64_t rows = tensor.shape.row_end, cols = tensor.cols();
    const auto    row = [&](int64_t at) {
        return std::clamp<int64_t>((at - tensor.begin + cols - 1) / cols, 0, rows);
    };
    const int64_t first = begin <= tensor.begin ? 0 : row(begin);
    const int64_t last  = end <= tensor.begin ? 0 : row(end);
    return first < last ? std::pair{first, last} : std::pair<int64_t, int64_t>{0, 0};
}

void Shards::add_view(
    ParamView view, ggml_tensor * weight, ggml_tensor * grad, int64_t offset, int64_t n
) {
    places_.push_back(
        {.weight      = weight,
         .grad        = grad,
         .offset      = static_cast<size_t>(offset) * sizeof(float),
         .weight_copy = {},
         .grad_copy   = {}}
    );
    Place &    place = places_.back();
    const auto size  = static_cast<size_t>(n);
    if (backend_.is_host() || (memory_ == OptimizerMemory::device && backend_.device())) {
        view.device = backend_.device();
        view.weight = {static_cast<float *>(weight->data) + offset, size};
        view.grad   = {static_cast<float *>(grad->data) + offset, size};
    } else {
        place.weight_copy.resize(size);
        place.grad_copy.resize(memory_ == OptimizerMemory::beside_grads ? 0 : size);
        view.weight = place.weight_copy;
        view.grad   = place.grad_copy;
    }
    views_.push_back(std::move(view));
}

void Shards::fetch_grads() {
    for (Place & p : places_) {
        if (!p.grad_copy.empty()) {
            ggml_backend_tensor_get(
                p.grad, p.grad_copy.data(), p.offset, p.grad_copy.size() * sizeof(float)
            );
        }
    }
}

void Shards::send_weights() {
    for (Place & p : places_) {
        if (!p.weight_copy.empty()) {
            ggml_backend_tensor_set(
                p.weight, p.weight_copy.data(), p.offset, p.weight_copy.size() * sizeof(float)
            );
        }
    }
}

namespace {

class WholeShards : public Shards {
public:
    WholeShards(
        const Backend &                backend,
        Weights &                      weights,
        const std::vector<ParamView> & shapes,
        const std::vector<int64_t> &   cut_rows,
        LocalGroup &                   ranks,
        bool                           cut,
        OptimizerMemory                memory
    )
        : Shards(backend, memory), ranks_(ranks), cut_(cut) {
        std::vector<FlatTensor> tensors;
        if (ranks.size() > 1) {
            weights_ = weights.flat_weights();
            grads_   = weights.flat_grads();
            tensors  = flat_tensors(weights, shapes, cut_rows);
            offsets_ = cut_flat(tensors, static_cast<int64_t>(weights_.size()), ranks.size());
        }
        for (size_t i = 0; i < shapes.size(); ++i) {
            ParamView     view  = shapes[i];
            const Param & param = weights.params()[i];
            const int64_t cols  = n_elements(param) / view.row_end;
            if (cut_ && ranks.size() > 1) {
                std::tie(view.row_begin, view.row_end) = rows_in(tensors[i], begin(), end());
            }
            add_view(
                view, param.weight, param.grad, view.row_begin * cols,
                (view.row_end - view.row_begin) * cols
            );
            bytes_ += ggml_nbytes(param.weight) + ggml_nbytes(param.grad);
        }
    }

    bool   cut() const override { return cut_; }
    size_t bytes() const override { return bytes_; }

    void reduce_grads() override {
        if (ranks_.size() > 1) {
            const auto access = backend_.access();
            cut_ ? ranks_.reduce_scatter(grads_, offsets_, mine(grads_))
                 : ranks_.all_reduce(grads_);
        }
        fetch_grads();
    }

    void share_weights() override {
        send_weights();
        if (cut_ && ranks_.size() > 1) {
            const auto access = backend_.access();
            ranks_.all_gather(mine(weights_), offsets_, weights_);
        }
    }

private:
    static std::vector<FlatTensor> flat_tensors(
        Weights &                      weights,
        const std::vector<ParamView> & shapes,
        const std::vector<int64_t> &   cut_rows
    ) {
        std::vector<FlatTensor> tensors;
        const float *           base = weights.flat_weights().data();
        for (size_t i = 0; i < shapes.size(); ++i) {
            const auto * data = static_cast<const float *>(weights.params()[i].weight->data);
            tensors.push_back({.shape = shapes[i], .begin = data - base, .cut = cut_rows[i]});
        }
        return tensors;
    }

    int64_t          begin() const { return offsets_[static_cast<size_t>(ranks_.rank())]; }
    int64_t          end() const { return offsets_[static_cast<size_t>(ranks_.rank()) + 1]; }
    std::span<float> mine(std::span<float> all) const {
        return all.subspan(static_cast<size_t>(begin()), static_cast<size_t>(end() - begin()));
    }

    LocalGroup &         ranks_;
    bool                 cut_;
    size_t               bytes_ = 0;
    std::span<float>     weights_, grads_;  // several ranks: all of them, and where they are cut
    std::vector<int64_t> offsets_;
};

}  // namespace

std::unique_ptr<Shards> make_whole_shards(
    const Backend &                backend,
    Weights &                      weights,
    const std::vector<ParamView> & shapes,
    const std::vector<int64_t> &   cut_rows,
    LocalGroup &                   ranks,
    bool                           cut,
    OptimizerMemory                memory
) {
    return std::make_unique<WholeShards>(backend, weights, shapes, cut_rows, ranks, cut, memory);
}

}  // namespace gt
