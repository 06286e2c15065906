// ggml-train/graph.h — a model's whole computation for one micro-batch: forward, loss and, when
// training, backward. Built once, run often.
#pragma once

#include "ggml-train/backend.h"
#include "ggml-train/batch.h"
#include "ggml-train/loss.h"

namespace gt {

struct GraphOptions {
    int64_t   B          = 1;  // samples per micro-batch
    int64_t   T          = 0;  // tokens per sample
    int64_t   image_size = 0;  // pictures: pixels and channels; 0: text
    int64_t   channels   = 0;
    Form      form       = Form::fused;
    Recompute recompute  = Recompute::cheap;
    float     smoothing  = 0.0f;   // of the labels
    bool      mixup      = false;  // batches bring mix_labels
    bool      depth      = false;  // batches bring factors for stochastic depth
    enum class Goal { train, loss, logits } goal = Goal::train;
};

class StepGraph {
public:
    StepGraph(const Backend & backend, Model & model, const GraphOptions & options);

    // Runs one micro-batch and returns the sum of the losses of all labels that count. When
    // training, gradients times `scale` are added to the parameters' gradients; `first` begins
    // anew instead. (scale: 1 / labels of the whole step, to train on their mean.)
    double run(const Batch & batch, float scale = 1.0f, bool first = true);

    // After run with Goal::logits: V x N floats, column by column.
    std::vector<float> logits() const;

    size_t               activation_bytes() const;  // memory planned for intermediate tensors
    const GraphOptions & options() const { return options_; }
    ggml_cgraph *        graph() const { return graph_; }  // for tests and reports

private:
    void build(Model & model);
    void feed(const Batch & batch, float scale, bool first);

    const Backend &         backend_;
    GraphOptions            options_;
    int64_t                 n_labels_ = 0;
    ggml_context_ptr        input_ctx_, graph_ctx_;
    ggml_backend_buffer_ptr input_buffer_;
    ggml_gallocr_ptr        plan_;
    ggml_cgraph *           graph_  = nullptr;
    ggml_tensor *           logits_ = nullptr;
    ggml_tensor *           beta_   = nullptr;
    ggml_tensor *           one_    = nullptr;
    Inputs                  inputs_;
    LossInputs              loss_;
    std::vector<Param> *    params_ = nullptr;
};

}  // namespace gt
