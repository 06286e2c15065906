#include "ggml-train/graph/graph.h"

#include "ggml-train/graph/compute.h"

#include <ggml-alloc.h>

namespace gt {

StepGraph::StepGraph(const Backend & backend, Model & model, const GraphOptions & options)
    : backend_(backend), options_(options), inputs_(backend, options, model.n_blocks()) {
    for (const Param & param : model.params()) {
        if (param.grad) {
            grad_buffers_.insert(param.grad->buffer);
        }
    }
    build(model);
    check_support(backend_, graph_);
    plan_ = backend_.plan({graph_});
}

void StepGraph::build(Model & model) {
    const size_t n_nodes = 1024 + 768 * static_cast<size_t>(model.n_blocks());
    ctx_                 = make_context(2 * n_nodes, n_nodes);
    graph_               = ggml_new_graph_custom(ctx_.get(), n_nodes, false);

    Ops ops(ctx_.get(), options_.form, options_.compute, &backend_);
    ops.set_dropout(options_.dropout, inputs_.model().dropout);
    ggml_tensor * x = ops.keep(model.embed(ops, inputs_.model()));
    for (int i = 0; i < model.n_blocks(); ++i) {
        x = ops.keep(model.block(ops, inputs_.model(), i, x));
    }
    Head head = model.head(ops, inputs_.model(), x);
    head.x    = ops.other_factor(head.x);
    ggml_build_forward_expand(graph_, head.x);

    switch (options_.goal) {
        case GraphOptions::Goal::logits:
            logits_ = append_logits(ops, graph_, head);
            break;
        case GraphOptions::Goal::loss:
            append_loss(ops, graph_, head, inputs_.labels(), nullptr);
            break;
        case GraphOptions::Goal::train: {
            Autograd autograd(ops, graph_, inputs_.beta(), inputs_.one(), options_.recompute);
            for (const Param & param : model.params()) {
                autograd.add_param(param);
            }
            autograd.run(head.x, [&] {
                return append_loss(ops, graph_, head, inputs_.labels(), &autograd);
            });
            break;
        }
    }
}

double StepGraph::run(const Batch & batch, float scale, bool first) {
    inputs_.set(batch, scale, !first);
    inputs_.set_depth(batch.depth);
    if (options_.goal == GraphOptions::Goal::train && options_.form != Form::fused && first) {
        for (ggml_backend_buffer_t grads : grad_buffers_) {
            ggml_backend_buffer_clear(grads, 0);
        }
    }
    compute(backend_, graph_);
    return options_.goal == GraphOptions::Goal::logits ? 0.0 : inputs_.loss(batch);
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
