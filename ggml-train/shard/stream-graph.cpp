#include "ggml-train/graph/compute.h"
#include "ggml-train/shard/stream.h"

#include <ggml-alloc.h>

namespace gt {

StreamGraph::StreamGraph(
    const Backend & backend, Model & window, Stream & stream, const GraphOptions & options
)
    : backend_(backend), stream_(stream), options_(options),
      inputs_(backend, options, window.n_blocks()), n_places_(window.n_blocks()) {
    build_embed(window);
    for (int i = 0; i < n_places_; ++i) {
        build_block(window, i);
    }
    build_head(window);
    std::vector<ggml_cgraph *> graphs{embed_.graph, head_.graph};
    if (trains()) {
        for (int i = 0; i < n_places_; ++i) {
            build_block_back(window, i);
            graphs.push_back(block_back_.back().graph);
        }
        build_embed_back(window);
        graphs.push_back(embed_back_.graph);
    }
    for (const Part & part : block_) {
        graphs.push_back(part.graph);
    }
    for (ggml_cgraph * graph : graphs) {
        check_support(backend_, graph);
    }
    plan_ = backend_.plan(graphs);
}

StreamGraph::Part StreamGraph::make_part() const {
    constexpr size_t kNodes = 2048;
    Part             part;
    part.ctx   = make_context(2 * kNodes, kNodes);
    part.graph = ggml_new_graph_custom(part.ctx.get(), kNodes, false);
    return part;
}

// Activations between stages have the shape of the embedded tokens.
void StreamGraph::make_memory(const ggml_tensor * embedded) {
    const int64_t C = embedded->ne[0], N = embedded->ne[1];
    ctx_ = make_context(static_cast<size_t>(stream_.n_blocks()) + 2);
    x_   = ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, C, N);
    if (trains()) {
        dx_ = ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, C, N);
        for (int i = 0; i < stream_.n_blocks(); ++i) {
            kept_.push_back(ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, C, N));
        }
    }
    buffer_ = backend_.allocate(ctx_.get(), "inputs of the blocks");
}

void StreamGraph::build_embed(Model & model) {
    embed_ = make_part();
    Ops           ops(embed_.ctx.get(), options_.form, options_.compute, &backend_);
    ggml_tensor * y = model.embed(ops, inputs_.model());
    make_memory(y);
    ggml_build_forward_expand(embed_.graph, ggml_cpy(ops.ctx(), y, x_));
}

void StreamGraph::build_block(Model & model, int place) {
    block_.push_back(make_part());
    const Part &  part = block_.back();
    Ops           ops(part.ctx.get(), options_.form, options_.compute, &backend_);
    ggml_tensor * y = model.block(ops, inputs_.model(), place, x_);
    ggml_build_forward_expand(part.graph, ggml_cpy(ops.ctx(), y, x_));
}

void StreamGraph::build_block_back(Model & model, int place) {
    block_back_.push_back(make_part());
    const Part &  part = block_back_.back();
    Ops           ops(part.ctx.get(), options_.form, options_.compute, &backend_);
    ggml_tensor * y = model.block(ops, inputs_.model(), place, x_);
    ggml_build_forward_expand(part.graph, y);
    Autograd autograd(ops, part.graph, inputs_.beta(), inputs_.one(), options_.recompute);
    for (const Param & param : model.params()) {
        autograd.add_param(param);
    }
    autograd.want(x_);
    autograd.run(y, [&] { return dx_; });
    ggml_build_forward_expand(part.graph, ggml_cpy(ops.ctx(), autograd.grad(x_), dx_));
}

void StreamGraph::build_head(Model & model) {
    head_ = make_part();
    Ops  ops(head_.ctx.get(), options_.form, options_.compute, &backend_);
    Head head = model.head(ops, inputs_.model(), x_);
    head.x    = ops.other_factor(head.x);
    ggml_build_forward_expand(head_.graph, head.x);
    if (options_.goal == GraphOptions::Goal::logits) {
        logits_ = append_logits(ops, head_.graph, head);
        return;
    }
    if (!trains()) {
        append_loss(ops, head_.graph, head, inputs_.labels(), nullptr);
        return;
    }
    Autograd autograd(ops, head_.graph, inputs_.beta(), inputs_.one(), options_.recompute);
    for (const Param & param : model.params()) {
        autograd.add_param(param);
    }
    autograd.want(x_);
    autograd.run(head.x, [&] {
        return append_loss(ops, head_.graph, head, inputs_.labels(), &autograd);
    });
    ggml_build_forward_expand(head_.graph, ggml_cpy(ops.ctx(), autograd.grad(x_), dx_));
}

void StreamGraph::build_embed_back(Model & model) {
    embed_back_ = make_part();
    Ops           ops(embed_back_.ctx.get(), options_.form, options_.compute, &backend_);
    ggml_tensor * y = model.embed(ops, inputs_.model());
    ggml_build_forward_expand(embed_back_.graph, y);
    Autograd autograd(ops, embed_back_.graph, inputs_.beta(), inputs_.one(), options_.recompute);
    for (const Param & param : model.params()) {
        autograd.add_param(param);
    }
    autograd.run(y, [&] { return dx_; });
}

double StreamGraph::run(const Batch & batch, float scale, bool first) {
    inputs_.set(batch, scale, true);  // add: the window's gradients are cleared before
    stream_.gather_ends();
    if (trains() && first) {
        stream_.clear_ends();
    }
    forward(batch);
    compute(backend_, head_.graph);
    if (trains()) {
        backward(batch, first);
    }
    return options_.goal == GraphOptions::Goal::logits ? 0.0 : inputs_.loss(batch);
}

void StreamGraph::forward(const Batch & batch) {
    const int n = stream_.n_blocks();
    stream_.start([&] { stream_.gather(0); });
    compute(backend_, embed_.graph);
    for (int i = 0; i < n; ++i) {
        stream_.wait();
        if (i + 1 < n) {
            stream_.start([&, i] { stream_.gather(i + 1); });
        }
        if (trains()) {
            ggml_backend_tensor_copy(x_, kept_[static_cast<size_t>(i)]);
        }
        set_depth(batch, i);
        compute(backend_, block_[static_cast<size_t>(stream_.place(i))].graph);
    }
}

void StreamGraph::backward(const Batch & batch, bool first) {
    const int n = stream_.n_blocks();
    for (int i = n - 1; i >= 0; --i) {
        stream_.wait();
        stream_.start([&, i] {
            if (i + 1 < n) {
                stream_.reduce(i + 1);
            }
            if (i > 0) {
                stream_.gather(i - 1);
            }
        });
        stream_.begin_grads(i, first);
        ggml_backend_tensor_copy(kept_[static_cast<size_t>(i)], x_);
        set_depth(batch, i);
        compute(backend_, block_back_[static_cast<size_t>(stream_.place(i))].graph);
    }
    stream_.wait();
    stream_.start([&] { stream_.reduce(0); });
    compute(backend_, embed_back_.graph);
    stream_.wait();
}

void StreamGraph::follow() {
    stream_.gather_ends();
    for (int i = 0; i < stream_.n_blocks(); ++i) {
        stream_.gather(i);
    }
}

// Sets the two factors of this block's branches, at its place in the window.
void StreamGraph::set_depth(const Batch & batch, int block) {
    if (!options_.depth) {
        return;
    }
    const auto         n_all = 2 * static_cast<size_t>(stream_.n_blocks());
    const auto         n     = 2 * static_cast<size_t>(n_places_);
    const auto         at    = 2 * static_cast<size_t>(stream_.place(block));
    std::vector<float> factors(n * static_cast<size_t>(options_.B), 1.0f);
    for (size_t b = 0; b < static_cast<size_t>(options_.B); ++b) {
        for (size_t k = 0; k < 2; ++k) {
            factors[b * n + at + k] = batch.depth[b * n_all + 2 * static_cast<size_t>(block) + k];
        }
    }
    inputs_.set_depth(factors);
}

std::vector<float> StreamGraph::logits() const {
    std::vector<float> values(ggml_nelements(logits_));
    ggml_backend_tensor_get(logits_, values.data(), 0, ggml_nbytes(logits_));
    return values;
}

size_t StreamGraph::activation_bytes() const {
    return ggml_gallocr_get_buffer_size(plan_.get(), 0) +
           ggml_backend_buffer_get_size(buffer_.get());
}

}  // namespace gt
