#include "ggml-train/graph/autograd.h"

#include "ggml-train/graph/epilogues.h"

#include <algorithm>

namespace gt {

Autograd::Autograd(
    Ops & ops, ggml_cgraph * graph, ggml_tensor * beta, ggml_tensor * one, Recompute recompute
)
    : ops_(ops), graph_(graph), beta_(beta), one_(one), recompute_(recompute) {}

void Autograd::add_param(const Param & param) {
    if (param.grad && param.rate != 0.0f) {
        needs_.insert(param.weight);
        accumulators_[param.weight] = param.grad;
    }
}

static bool is_view(const ggml_tensor * x) {
    return x->op == GGML_OP_VIEW || x->op == GGML_OP_RESHAPE || x->op == GGML_OP_PERMUTE ||
           x->op == GGML_OP_TRANSPOSE;
}

void Autograd::run(ggml_tensor * root, const std::function<ggml_tensor *()> & root_grad) {
    // The nodes as they stand now: loss and reverse pass append to the same graph.
    std::vector<ggml_tensor *> nodes(
        ggml_graph_nodes(graph_), ggml_graph_nodes(graph_) + ggml_graph_n_nodes(graph_)
    );
    for (ggml_tensor * node : nodes) {
        if (std::any_of(node->src, node->src + GGML_MAX_SRC, [&](auto * s) { return needs(s); })) {
            needs_.insert(node);
        }
    }
    add(root, root_grad());
    for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
        backward(*it);
    }
    join_gelus(graph_, static_cast<int>(nodes.size()));
}

void Autograd::backward(ggml_tensor * node) {
    ggml_tensor * g = grad(node);
    if (!g || node->op == GGML_OP_NONE) {
        return;
    }
    const GradRule own  = ops_.rule_of(node);
    const GradRule rule = own                          ? own
                          : node->op == GGML_OP_CUSTOM ? find_fused_rule(node)
                                                       : find_rule(node);
    if (!rule) {
        throw Error(format(
            "no gradient rule for op %s of tensor '%s': freeze what lies before it, or add a rule "
            "to "
            "ggml-train/graph/autograd-rules.cpp",
            ggml_op_desc(node), node->name
        ));
    }
    rule(*this, node, g);
    grads_.erase(node);
}

ggml_tensor * Autograd::grad(const ggml_tensor * x) const {
    const auto found = grads_.find(x);
    return found == grads_.end() ? nullptr : found->second;
}

ggml_tensor * Autograd::accumulator(const ggml_tensor * param) const {
    const auto found = accumulators_.find(param);
    return found == accumulators_.end() ? nullptr : found->second;
}

ggml_tensor * Autograd::next_beta(const ggml_tensor * param) {
    return written_.insert(param).second ? beta_ : one_;
}

ggml_tensor * as_type(Autograd & a, ggml_tensor * x, ggml_type type) {
    return x->type == type ? x : ggml_cast(a.ctx(), contiguous(a, x), type);
}

ggml_tensor * Autograd::take(ggml_tensor * x) {
    ggml_tensor * g = grad(x);
    grads_.erase(x);
    return g;
}

void Autograd::emit(ggml_tensor * node) {
    ggml_build_forward_expand(graph_, node);
}

void Autograd::add(ggml_tensor * x, ggml_tensor * g) {
    if (!needs(x)) {
        return;
    }
    GT_CHECK(ggml_are_same_shape(x, g), "a rule returned a gradient of another shape");
    if (x->type != g->type) {
        g = as_type(*this, g, GGML_TYPE_F32);
    }
    if (ggml_tensor * acc = accumulator(x)) {
        g = contiguous(*this, g);
        emit(
            ops_.form() == Form::fused ? fused_inplace(ctx(), kAccumulate, acc, {g, next_beta(x)})
                                       : ggml_add_inplace(ctx(), acc, g)
        );
        return;
    }
    ggml_tensor *& sum = grads_[x];
    if (sum) {
        g = ggml_add(ctx(), as_type(*this, sum, GGML_TYPE_F32), as_type(*this, g, GGML_TYPE_F32));
    }
    sum = g;
    emit(sum);
}

// Whether repeating x as a whole gives the shape of g.
static bool is_row_of(const ggml_tensor * x, const ggml_tensor * g) {
    int i = 0;
    while (i < GGML_MAX_DIMS && x->ne[i] == g->ne[i]) {
        ++i;
    }
    return std::all_of(x->ne + i, x->ne + GGML_MAX_DIMS, [](int64_t n) { return n == 1; });
}

void Autograd::add_sum(ggml_tensor * x, ggml_tensor * g) {
    if (!needs(x) || ggml_are_same_shape(x, g)) {
        add(x, g);
        return;
    }
    g                 = contiguous(*this, g);
    ggml_tensor * acc = ops_.form() == Form::device ? accumulator(x) : nullptr;
    if (!acc || !is_row_of(x, g)) {
        add(x, sum_copies(*this, g, x));
        return;
    }
    const int64_t n    = ggml_nelements(x);
    ggml_tensor * rows = ggml_reshape_2d(ctx(), g, n, ggml_nelements(g) / n);
    emit(fused_inplace(ctx(), kSumRows, ggml_reshape_1d(ctx(), acc, n), {rows, next_beta(x)}));
}

ggml_tensor * sum_copies(Autograd & a, ggml_tensor * g, ggml_tensor * x) {
    ggml_context * ctx = a.ctx();
    ggml_tensor *  sum = ggml_repeat_back(ctx, g, x);
    if (a.ops().runs(sum)) {
        return sum;
    }
    // dimension by dimension: the copies along it become rows, which are summed
    int64_t inner = 1;
    for (int d = 0; d < GGML_MAX_DIMS; ++d) {
        inner *= x->ne[d];
        const int64_t n = g->ne[d] / x->ne[d];
        if (n > 1) {
            ggml_tensor * copies =
                ggml_reshape_3d(ctx, g, inner, n, ggml_nelements(g) / (inner * n));
            ggml_tensor * rows = ggml_cont(ctx, ggml_permute(ctx, copies, 1, 0, 2, 3));
            auto          ne   = std::to_array(g->ne);
            ne[d]              = x->ne[d];
            g = ggml_reshape_4d(ctx, ggml_sum_rows(ctx, rows), ne[0], ne[1], ne[2], ne[3]);
        }
    }
    return g;
}

ggml_tensor * contiguous(Autograd & a, ggml_tensor * x) {
    return ggml_is_contiguous(x) ? x : ggml_cont(a.ctx(), x);
}

ggml_tensor * Autograd::value(ggml_tensor * x) {
    if (x->op == GGML_OP_NONE || ops_.is_kept(x)) {
        return x;
    }
    if (const auto found = again_.find(x); found != again_.end()) {
        return found->second;
    }
    const FusedOp * fused  = fused_op(x);
    const bool      frozen = x->op == GGML_OP_CPY && ggml_is_quantized(x->src[0]->type);
    const bool      norm   = fused == &kLayerNorm || fused == &kRmsNorm;
    // norms in BF16 take less memory than the time is worth to compute them again
    const bool cheap = frozen || (fused && fused->cheap && !(norm && x->type == GGML_TYPE_BF16));
    if (recompute_ == Recompute::cheap && !cheap && !is_view(x)) {
        return x;
    }
    ggml_tensor copy    = *x;
    bool        changed = !is_view(x);  // a view is only recreated if its source is
    for (ggml_tensor *& src : copy.src) {
        if (src && src != x) {  // a cast has itself as its second source
            ggml_tensor * again = value(src);
            changed |= again != src;
            src = again;
        }
    }
    if (!changed) {
        return x;
    }
    ggml_tensor * result = ggml_dup_tensor(ctx(), x);
    std::copy(x->op_params, x->op_params + std::size(x->op_params), result->op_params);
    std::replace_copy(copy.src, copy.src + GGML_MAX_SRC, result->src, x, result);
    std::copy(x->nb, x->nb + GGML_MAX_DIMS, result->nb);
    result->op = x->op;
    if (is_view(x)) {
        ggml_tensor * base = result->src[0];
        result->view_src   = base->view_src ? base->view_src : base;
        result->view_offs  = x->view_offs;
    }
    ggml_format_name(result, "%s again", x->name);
    return again_[x] = result;
}

}  // namespace gt
