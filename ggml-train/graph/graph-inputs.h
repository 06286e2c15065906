// ggml-train/graph/graph-inputs.h — the tensors that the host writes before a micro-batch and reads after
// it: tokens or pictures, labels, scales, losses. Shared by whole graphs (graph.h) and streamed ones (stream.h).
#pragma once

#include "ggml-train/batch.h"
#include "ggml-train/device/backend.h"
#include "ggml-train/graph/loss.h"

namespace gt {

struct GraphOptions {
    int64_t   B           = 1;  // samples per micro-batch
    int64_t   T           = 0;  // tokens per sample
    int64_t   image_size  = 0;  // pictures: height in pixels; 0: text
    int64_t   image_width = 0;  // 0: as the height
    int64_t   channels    = 0;
    Form      form        = Form::fused;
    ggml_type compute     = GGML_TYPE_F32;  // of products with weights; fused: F32 only
    Recompute recompute   = Recompute::cheap;
    float     smoothing   = 0.0f;   // of the labels
    bool      mixup       = false;  // batches have mix_labels
    bool      depth       = false;  // batches have factors for stochastic depth
    bool      packed      = false;  // batches have positions: samples are made of segments
    float     dropout     = 0.0f;   // of what adapters see; above 0, batches have keys
    enum class Goal { train, loss, logits } goal = Goal::train;
};

class StepInputs {
public:
    // n_blocks: blocks of the model, for the factors of stochastic depth.
    StepInputs(const Backend & backend, const GraphOptions & options, int n_blocks);

    // `add`: gradients are added to the old ones, otherwise they replace them. Sets all but the depth.
    void set(const Batch & batch, float scale, bool add);
    void set_depth(std::span<const float> factors);  // [2 * n_blocks, B]

    // After a run: the sum of the losses of all labels that are not ignored.
    double loss(const Batch & batch) const;

    const Inputs &     model() const { return inputs_; }
    const LossInputs & labels() const { return loss_; }
    ggml_tensor *      beta() const { return beta_; }
    ggml_tensor *      one() const { return one_; }

private:
    GraphOptions            options_;
    ggml_context_ptr        ctx_;
    ggml_backend_buffer_ptr buffer_;
    Inputs                  inputs_;
    LossInputs              loss_;
    ggml_tensor *           beta_ = nullptr;
    ggml_tensor *           one_  = nullptr;
};

}  // namespace gt
