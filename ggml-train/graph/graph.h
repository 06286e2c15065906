// ggml-train/graph/graph.h — a model's whole computation for one micro-batch: forward, loss and, when
// training, backward. Built once, run often.
#pragma once

#include "ggml-train/graph/graph-inputs.h"

namespace gt {

// Runs micro-batches, in one graph (below) or block by block (stream.h).
class StepRunner {
public:
    virtual ~StepRunner() = default;

    // Runs one micro-batch and returns the sum of the losses of all labels that are not ignored. When
    // training, gradients times `scale` are added to the parameters' gradients, or replace them if
    // `first`. (scale: 1 / labels of the whole step, to train on their mean.)
    virtual double run(const Batch & batch, float scale = 1.0f, bool first = true) = 0;

    // Called by the other ranks while one rank runs a micro-batch alone: shares their weights if
    // streamed.
    virtual void follow() = 0;

    // After run with Goal::logits: V x N floats, column by column.
    virtual std::vector<float> logits() const = 0;

    // Gives the memory of intermediate tensors back until the next run, if it is the host's.
    virtual void release() {}

    virtual size_t               activation_bytes() const = 0;  // memory for intermediate tensors
    virtual const GraphOptions & options() const          = 0;
};

class StepGraph : public StepRunner {
public:
    StepGraph(const Backend & backend, Model & model, const GraphOptions & options);

    double             run(const Batch & batch, float scale = 1.0f, bool first = true) override;
    void               follow() override {}
    std::vector<float> logits() const override;
    void               release() override { backend_.release(graph_); }

    size_t               activation_bytes() const override;
    const GraphOptions & options() const override { return options_; }
    ggml_cgraph *        graph() const { return graph_; }  // for tests

private:
    void build(Model & model);

    const Backend &  backend_;
    GraphOptions     options_;
    StepInputs       inputs_;
    ggml_context_ptr ctx_;
    ggml_gallocr_ptr plan_;
    ggml_cgraph *    graph_  = nullptr;
    ggml_tensor *    logits_ = nullptr;

    std::unordered_set<ggml_backend_buffer_t> grad_buffers_;  // of gradients alone (weights.h)
};

}  // namespace gt
