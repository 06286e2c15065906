#include "ggml-train/graph.h"

namespace gt {

StepGraph::StepGraph(const Backend & backend, Model & model, const GraphOptions & options)
    : backend_(backend), options_(options), params_(&model.params()) {
    const bool images = options_.image_size > 0;
    n_labels_         = images ? options_.B : options_.B * options_.T;

    // what the host writes and reads
    input_ctx_         = make_context(16);
    ggml_context * ctx = input_ctx_.get();
    inputs_.B          = options_.B;
    inputs_.T          = options_.T;
    if (images) {
        inputs_.images = ggml_new_tensor_4d(
            ctx, GGML_TYPE_F32, options_.image_size, options_.image_size, options_.channels, options_.B
        );
    } else {
        inputs_.tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_labels_);
    }
    loss_.labels    = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_labels_);
    loss_.targets   = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, n_labels_);
    loss_.mask      = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 1, n_labels_);
    loss_.scale     = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    loss_.rows      = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n_labels_);
    loss_.smoothing = options_.smoothing;
    beta_           = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    one_            = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    input_buffer_   = backend_.allocate(ctx, "inputs");
    const float one = 1.0f;
    ggml_backend_tensor_set(one_, &one, 0, sizeof(one));

    build(model);
    backend_.check_support(graph_);
    plan_ = backend_.plan(graph_);
}

void StepGraph::build(Model & model) {
    const size_t n_nodes = 1024 + 768 * static_cast<size_t>(model.n_blocks());
    graph_ctx_           = make_context(2 * n_nodes, n_nodes);
    graph_               = ggml_new_graph_custom(graph_ctx_.get(), n_nodes, false);

    Ops           ops(graph_ctx_.get(), options_.form);
    ggml_tensor * x = ops.keep(model.embed(ops, inputs_));
    for (int i = 0; i < model.n_blocks(); ++i) {
        x = ops.keep(model.block(ops, inputs_, i, x));
    }
    const Head head = model.head(ops, inputs_, x);
    ggml_build_forward_expand(graph_, head.x);

    switch (options_.goal) {
        case GraphOptions::Goal::logits: logits_ = append_logits(ops, graph_, head); break;
        case GraphOptions::Goal::loss:   append_loss(ops, graph_, head, loss_, nullptr); break;
        case GraphOptions::Goal::train: {
            Autograd autograd(ops, graph_, beta_, one_, options_.recompute);
            for (const Param & param : model.params()) {
                autograd.add_param(param);
            }
            autograd.run(head.x, [&] { return append_loss(ops, graph_, head, loss_, &autograd); });
            break;
        }
    }
}

void StepGraph::feed(const Batch & batch, float scale, bool first) {
    GT_CHECK(batch.n_samples == options_.B, "the graph was built for another batch size");
    const auto set = [](ggml_tensor * t, const auto & values) {
        GT_CHECK(values.size() * sizeof(values[0]) == ggml_nbytes(t), "batch of another shape");
        ggml_backend_tensor_set(t, values.data(), 0, ggml_nbytes(t));
    };
    if (inputs_.images) {
        set(inputs_.images, batch.images);
    } else {
        set(inputs_.tokens, batch.tokens);
    }
    if (options_.goal == GraphOptions::Goal::logits) {
        return;
    }
    std::vector<int32_t> targets(batch.labels);
    std::vector<float>   mask(batch.labels.size(), 1.0f);
    for (size_t i = 0; i < targets.size(); ++i) {
        if (targets[i] < 0) {
            targets[i] = 0;
            mask[i]    = 0.0f;
        }
    }
    set(loss_.labels, batch.labels);
    set(loss_.targets, targets);
    set(loss_.mask, mask);
    set(loss_.scale, std::array{scale});
    set(beta_, std::array{first ? 0.0f : 1.0f});
}

double StepGraph::run(const Batch & batch, float scale, bool first) {
    feed(batch, scale, first);
    if (options_.goal == GraphOptions::Goal::train && options_.form == Form::portable && first) {
        for (const Param & param : *params_) {
            if (param.grad) {
                ggml_backend_tensor_memset(param.grad, 0, 0, ggml_nbytes(param.grad));
            }
        }
    }
    backend_.compute(graph_);
    if (options_.goal == GraphOptions::Goal::logits) {
        return 0.0;
    }
    std::vector<float> rows(n_labels_);
    ggml_backend_tensor_get(loss_.rows, rows.data(), 0, rows.size() * sizeof(float));
    double sum = 0.0;
    for (float loss : rows) {
        sum += loss;
    }
    return sum;
}

std::vector<float> StepGraph::logits() const {
    std::vector<float> values(ggml_nelements(logits_));
    ggml_backend_tensor_get(logits_, values.data(), 0, ggml_nbytes(logits_));
    return values;
}

size_t StepGraph::activation_bytes() const {
    return ggml_gallocr_get_buffer_size(plan_.get(), 0);
}

}  // namespace gt
