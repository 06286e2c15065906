#include "ggml-train/shard/stream.h"

#include <algorithm>
#include <cstdlib>

namespace gt {

// The block that a tensor belongs to, by its name ("blk.7.", "v.blk.7."); -1: none.
static int block_of(const std::string & name) {
    const size_t at = name.find("blk.");
    return at == std::string::npos ? -1 : std::atoi(name.c_str() + at + 4);
}

// A stage is a run of tensors of the same block. Returns where each begins, and the end.
template <class T>
static std::vector<size_t> stage_begins(const std::vector<T> & tensors) {
    std::vector<size_t> begins{0};
    for (size_t i = 1; i < tensors.size(); ++i) {
        if (block_of(tensors[i].name) != block_of(tensors[i - 1].name)) {
            begins.push_back(i);
        }
    }
    begins.push_back(tensors.size());
    return begins;
}

static std::span<float> memory(const ggml_tensor * first, const ggml_tensor * last) {
    float *       begin = static_cast<float *>(first->data);
    const float * end   = static_cast<const float *>(last->data) + ggml_nelements(last);
    return {begin, static_cast<size_t>(end - begin)};
}

Stream::Stream(
    const Backend &                backend,
    Weights &                      window,
    const std::vector<ParamView> & shapes,
    const std::vector<int64_t> &   cut_rows,
    LocalGroup &                   ranks,
    OptimizerMemory                memory
)
    : Shards(backend, memory), ranks_(ranks) {
    const std::vector<size_t> begins   = stage_begins(shapes);
    const size_t              n_stages = begins.size() - 1;
    make_windows(window, n_stages);
    shard_ctx_ = make_context(2 * n_stages);

    // Stages: where their tensors lie in the window, and which slice this rank owns.
    std::vector<std::vector<FlatTensor>> tensors(n_stages);
    for (size_t s = 0; s < n_stages; ++s) {
        const int w = window_of(s, n_stages);
        for (size_t i = begins[s]; i < begins[s + 1]; ++i) {
            const Param & param =
                window.params()[window_begins_[static_cast<size_t>(w)] + i - begins[s]];
            tensors[s].push_back(
                {.shape = shapes[i],
                 .begin = static_cast<const float *>(param.weight->data) -
                          windows_[static_cast<size_t>(w)].weights.data(),
                 .cut = cut_rows[i]}
            );
        }
        make_stage(tensors[s], w);
    }

    // Memory for this rank's slices, and the optimizer's views of it.
    shard_buffer_ = backend_.allocate(shard_ctx_.get(), "weights and gradients of this rank");
    for (size_t s = 0; s < n_stages; ++s) {
        add_views(stages_[s], tensors[s]);
    }
}

// The embedding has the first window, the head the last; blocks take the places between in turn.
int Stream::window_of(size_t stage, size_t n_stages) const {
    if (stage == 0) {
        return 0;
    }
    return stage + 1 == n_stages ? n_places_ + 1 : 1 + place(static_cast<int>(stage) - 1);
}

void Stream::add_views(const Stage & stage, const std::vector<FlatTensor> & tensors) {
    const auto    r     = static_cast<size_t>(ranks_.rank());
    const int64_t begin = stage.offsets[r], end = stage.offsets[r + 1];
    for (const FlatTensor & tensor : tensors) {
        ParamView view                         = tensor.shape;
        std::tie(view.row_begin, view.row_end) = rows_in(tensor, begin, end);
        const int64_t cols = tensor.cols(), rows = view.row_end - view.row_begin;
        const int64_t at = tensor.begin + view.row_begin * cols - begin;
        add_view(view, stage.weight, stage.grad, rows ? at : 0, rows * cols);
    }
}

void Stream::make_windows(Weights & window, size_t n_stages) {
    const std::vector<Param> & params = window.params();
    window_begins_                    = stage_begins(params);
    n_places_                         = static_cast<int>(window_begins_.size()) - 3;
    held_.assign(static_cast<size_t>(n_places_), -1);
    for (size_t w = 0; w + 1 < window_begins_.size(); ++w) {
        const Param &first = params[window_begins_[w]], &last = params[window_begins_[w + 1] - 1];
        windows_.push_back(
            {memory(first.weight, last.weight), memory(first.grad, last.grad), nullptr}
        );
    }
    window_ctx_ = make_context(windows_.size() + n_stages);
    for (Window & w : windows_) {
        w.grad = ggml_new_tensor_1d(
            window_ctx_.get(), GGML_TYPE_F32, static_cast<int64_t>(w.grads.size())
        );
        ggml_backend_tensor_alloc(params[0].grad->buffer, w.grad, w.grads.data());
    }
}

void Stream::make_stage(const std::vector<FlatTensor> & tensors, int window) {
    const Window & w = windows_[static_cast<size_t>(window)];
    const auto     r = static_cast<size_t>(ranks_.rank());
    Stage          stage{.offsets = {}, .window = window};
    stage.offsets   = cut_flat(tensors, static_cast<int64_t>(w.weights.size()), ranks_.size());
    stage.size      = stage.offsets[r + 1] - stage.offsets[r];
    const int64_t n = std::max<int64_t>(1, stage.size);
    stage.weight    = ggml_new_tensor_1d(shard_ctx_.get(), GGML_TYPE_F32, n);
    stage.grad      = ggml_new_tensor_1d(shard_ctx_.get(), GGML_TYPE_F32, n);
    if (stage.size > 0) {
        stage.slice = ggml_view_1d(
            window_ctx_.get(), w.grad, n, static_cast<size_t>(stage.offsets[r]) * sizeof(float)
        );
        ggml_backend_view_init(stage.slice);
    }
    stages_.push_back(std::move(stage));
}

std::span<float> Stream::shard(const Stage & stage, const ggml_tensor * tensor) const {
    return {static_cast<float *>(tensor->data), static_cast<size_t>(stage.size)};
}

void Stream::gather(Stage & stage) {
    const auto access = backend_.access();
    ranks_.all_gather(
        shard(stage, stage.weight), stage.offsets,
        windows_[static_cast<size_t>(stage.window)].weights
    );
}

void Stream::reduce(Stage & stage) {
    const auto access = backend_.access();
    ranks_.reduce_scatter(
        windows_[static_cast<size_t>(stage.window)].grads, stage.offsets, shard(stage, stage.grad)
    );
}

void Stream::gather_ends() {
    if (!ends_held_) {
        gather(stages_.front());
        gather(stages_.back());
    }
    ends_held_ = true;
}

void Stream::gather(int i) {
    int & held = held_[static_cast<size_t>(place(i))];
    if (held != i) {
        gather(block(i));
    }
    held = i;
}

void Stream::clear_ends() {
    for (const Window * w : {&windows_.front(), &windows_.back()}) {
        ggml_backend_tensor_memset(w->grad, 0, 0, ggml_nbytes(w->grad));
    }
}

void Stream::begin_grads(int i, bool first) {
    const Stage & stage = block(i);
    ggml_tensor * grad  = windows_[static_cast<size_t>(stage.window)].grad;
    ggml_backend_tensor_memset(grad, 0, 0, ggml_nbytes(grad));
    if (!first && stage.slice) {
        ggml_backend_tensor_copy(stage.grad, stage.slice);
    }
}

void Stream::reduce(int i) {
    reduce(block(i));
}

void Stream::start(std::function<void()> moves) {
    moving_ = std::async(std::launch::async, std::move(moves));
}

void Stream::wait() {
    if (moving_.valid()) {
        moving_.get();
    }
}

void Stream::reduce_grads() {
    reduce(stages_.front());
    reduce(stages_.back());
    fetch_grads();
}

void Stream::share_weights() {
    send_weights();
    std::fill(held_.begin(), held_.end(), -1);
    ends_held_ = false;
    ranks_.barrier();  // no rank gathers before all have sent
}

}  // namespace gt
