#include "ggml-train/graph.h"

#include <algorithm>
#include <numeric>

namespace gt {

StepGraph::StepGraph(const Backend & backend, Model & model, const GraphOptions & options)
    : backend_(backend), options_(options), params_(&model.params()) {
    const bool images = options_.image_size > 0;
    n_labels_         = images ? options_.B : options_.B * options_.T;

    // what the host writes and reads
    input_ctx_         = make_context(24);
    ggml_context * ctx = input_ctx_.get();
    inputs_.B          = options_.B;
    inputs_.T          = options_.T;
    if (images) {
        inputs_.images = ggml_new_tensor_4d(
            ctx, GGML_TYPE_F32, options_.image_size, options_.image_size, options_.channels,
            options_.B
        );
    } else {
        inputs_.tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_labels_);
    }
    if (options_.depth) {
        inputs_.depth = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 2 * model.n_blocks(), options_.B);
    }
    loss_.labels    = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_labels_);
    loss_.targets   = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, n_labels_);
    loss_.mask      = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 1, n_labels_);
    loss_.scale     = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    loss_.rows      = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n_labels_);
    loss_.smoothing = options_.smoothing;
    if (options_.mixup) {
        loss_.mix_labels  = ggml_dup_tensor(ctx, loss_.labels);
        loss_.mix_targets = ggml_dup_tensor(ctx, loss_.targets);
        loss_.mix_scale   = ggml_dup_tensor(ctx, loss_.scale);
        loss_.mix_rows    = ggml_dup_tensor(ctx, loss_.rows);
    }
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
        case GraphOptions::Goal::logits:
            logits_ = append_logits(ops, graph_, head);
            break;
        case GraphOptions::Goal::loss:
            append_loss(ops, graph_, head, loss_, nullptr);
            break;
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
    if (inputs_.depth) {
        set(inputs_.depth, batch.depth);
    }
    if (options_.goal == GraphOptions::Goal::logits) {
        return;
    }
    std::vector<float> mask;
    for (int32_t label : batch.labels) {
        mask.push_back(label < 0 ? 0.0f : 1.0f);
    }
    const auto targets = [](std::vector<int32_t> labels) {
        for (int32_t & label : labels) {
            label = std::max(label, 0);
        }
        return labels;
    };
    set(loss_.labels, batch.labels);
    set(loss_.targets, targets(batch.labels));
    set(loss_.mask, mask);
    set(loss_.scale, std::array{options_.mixup ? scale * batch.mix : scale});
    if (options_.mixup) {
        set(loss_.mix_labels, batch.mix_labels);
        set(loss_.mix_targets, targets(batch.mix_labels));
        set(loss_.mix_scale, std::array{scale * (1.0f - batch.mix)});
    }
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
    const auto sum = [&](ggml_tensor * losses) {
        std::vector<float> rows(n_labels_);
        ggml_backend_tensor_get(losses, rows.data(), 0, rows.size() * sizeof(float));
        return std::accumulate(rows.begin(), rows.end(), 0.0);
    };
    const double mix = batch.mix;
    return options_.mixup ? mix * sum(loss_.rows) + (1.0 - mix) * sum(loss_.mix_rows)
                          : sum(loss_.rows);
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
