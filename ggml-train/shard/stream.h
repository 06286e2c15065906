// ggml-train/shard/stream.h — streamed mode: weights, gradients and optimizer state sharded over ranks, for
// models that do not fit one device.
//
// A rank keeps its slice of every stage (embedding, each block, head). Graphs compute in a window: a
// small model with the embedding, the head and two places for blocks. A block is gathered into the
// window just before it is needed, while the block before it computes. In the reverse pass it is
// recomputed from its kept input, and its gradients are reduced to their owners right after. So a rank
// needs memory for the window and for its shard, whatever the depth.
#pragma once

#include "ggml-train/graph/graph.h"
#include "ggml-train/shard/shard.h"

#include <future>

namespace gt {

// Blocks in a window: one computes while the next is gathered.
constexpr int64_t kWindowBlocks = 2;

// Moves stages between the ranks' shards and the window.
class Stream : public Shards {
public:
    // window: weights of the same model with min(kWindowBlocks, L) blocks. shapes: param_shapes of
    // the whole model. cut_rows: FlatTensor::cut of every shape. memory: of the
    // optimizer.
    Stream(
        const Backend &                backend,
        Weights &                      window,
        const std::vector<ParamView> & shapes,
        const std::vector<int64_t> &   cut_rows,
        LocalGroup &                   ranks,
        OptimizerMemory                memory
    );

    bool   cut() const override { return true; }
    size_t bytes() const override { return ggml_backend_buffer_get_size(shard_buffer_.get()); }
    void   reduce_grads() override;
    void   share_weights() override;

    int n_blocks() const { return static_cast<int>(stages_.size()) - 2; }
    int place(int block) const { return block % n_places_; }  // in the window

    // Gathers embedding and head, or a block, into the window. Collective, like all that follow.
    void gather_ends();
    void gather(int block);

    // Clears the gradients in the window; unless first, a block's start from this rank's shard.
    void clear_ends();
    void begin_grads(int block, bool first);

    // Reduces a block's gradients from the window to their owners.
    void reduce(int block);

    // Runs `moves` (calls of the above) while this thread computes. REQUIRES: wait() before the next.
    void start(std::function<void()> moves);
    void wait();

private:
    struct Window {  // a stage's memory in the window
        std::span<float> weights, grads;
        ggml_tensor *    grad = nullptr;  // all of it
    };
    struct Stage {
        std::vector<int64_t> offsets;  // a slice per rank
        int                  window = 0;
        ggml_tensor *        weight = nullptr;  // this rank's slice
        ggml_tensor *        grad   = nullptr;
        ggml_tensor *        slice  = nullptr;  // its place in the window's gradients
        int64_t              size   = 0;        // of the slice
    };
    void             make_windows(Weights & window, size_t n_stages);
    void             make_stage(const std::vector<FlatTensor> & tensors, int window);
    int              window_of(size_t stage, size_t n_stages) const;
    void             add_views(const Stage & stage, const std::vector<FlatTensor> & tensors);
    void             gather(Stage & stage);
    void             reduce(Stage & stage);
    std::span<float> shard(const Stage & stage, const ggml_tensor * tensor) const;
    Stage &          block(int i) { return stages_[static_cast<size_t>(i) + 1]; }

    LocalGroup &            ranks_;
    int                     n_places_ = 0;
    std::vector<Window>     windows_;
    std::vector<size_t>     window_begins_;  // first parameter of each window, and the end
    std::vector<Stage>      stages_;
    ggml_context_ptr        window_ctx_, shard_ctx_;
    ggml_backend_buffer_ptr shard_buffer_;
    std::vector<int>        held_;  // which block is in each place; -1: none
    bool                    ends_held_ = false;
    std::future<void>       moving_;  // last: it must end before anything it uses is destroyed
};

// A step, stage by stage. window: the model whose weights `stream` fills.
class StreamGraph : public StepRunner {
public:
    StreamGraph(
        const Backend & backend, Model & window, Stream & stream, const GraphOptions & options
    );

    double             run(const Batch & batch, float scale = 1.0f, bool first = true) override;
    void               follow() override;
    std::vector<float> logits() const override;

    size_t               activation_bytes() const override;
    const GraphOptions & options() const override { return options_; }

private:
    struct Part {
        ggml_context_ptr ctx;
        ggml_cgraph *    graph = nullptr;
    };
    Part make_part() const;
    void make_memory(const ggml_tensor * embedded);
    void build_embed(Model & model);
    void build_block(Model & model, int place);
    void build_block_back(Model & model, int place);
    void build_head(Model & model);
    void build_embed_back(Model & model);
    void set_depth(const Batch & batch, int block);
    void forward(const Batch & batch);
    void backward(const Batch & batch, bool first);
    bool trains() const { return options_.goal == GraphOptions::Goal::train; }

    const Backend &            backend_;
    Stream &                   stream_;
    GraphOptions               options_;
    StepInputs                 inputs_;
    int                        n_places_;
    ggml_context_ptr           ctx_;
    ggml_backend_buffer_ptr    buffer_;
    ggml_gallocr_ptr           plan_;  // one memory for all parts: they run one after another
    Part                       embed_, head_, embed_back_;
    std::vector<Part>          block_, block_back_;  // one per place
    ggml_tensor *              x_      = nullptr;    // [C, N]: input of a stage, then its output
    ggml_tensor *              dx_     = nullptr;    // [C, N]: its gradient, the other way
    ggml_tensor *              logits_ = nullptr;
    std::vector<ggml_tensor *> kept_;  // [C, N]: input of each block
};

}  // namespace gt
