#include "ggml-train/graph/loss.h"

#include <algorithm>

namespace gt {

// Columns per chunk: as many as 64 MB of logits hold, or 128 MB on devices, where every chunk reads and
// writes the whole gradient of the weight; there at most four chunks, if products are ours. A frozen weight
// has no gradient: 16 MB do.
static int64_t chunk_columns(const Ops & ops, bool frozen, int64_t V, int64_t N) {
    const bool    fused  = ops.form() == Form::fused;
    const int64_t floats = int64_t{!fused ? 32 : frozen ? 4 : 16} << 20;
    const int64_t most   = std::max<int64_t>(1, floats / V);
    const int64_t chunks = (N + most - 1) / most;
    const int64_t n      = ops.own_products() && !fused ? std::min<int64_t>(chunks, 4) : chunks;
    return (N + n - 1) / n;
}

static ggml_tensor * columns(ggml_context * ctx, ggml_tensor * x, int64_t begin, int64_t n) {
    return ggml_view_2d(ctx, x, x->ne[0], n, x->nb[1], begin * x->nb[1]);
}

static ggml_tensor * elements(ggml_context * ctx, ggml_tensor * x, int64_t begin, int64_t n) {
    return ggml_view_1d(ctx, x, n, begin * ggml_element_size(x));
}

// The rows of a weight that are real, without the padding.
static ggml_tensor * real_rows(ggml_context * ctx, ggml_tensor * w, int64_t V) {
    return w->ne[1] == V ? w : ggml_view_2d(ctx, w, w->ne[0], V, w->nb[1], 0);
}

// Columns [begin, begin + n) of a head; dx is null without gradients.
struct Chunk {
    int64_t       begin = 0, n = 0;
    ggml_tensor * x  = nullptr;  // all columns of head.x, as a factor
    ggml_tensor * dx = nullptr;  // the gradient of head.x
    ggml_tensor * w =
        nullptr;  // the weight as a factor, made once for all chunks; transposed for products of ggml's
};

// The gradients of a chunk's products from that of its logits, g [V, n]: of weight, bias and x [C, n].
static void products_back(
    Ops &         ops,
    const Head &  head,
    Autograd &    autograd,
    ggml_tensor * x,
    ggml_tensor * g,
    const Chunk & chunk
) {
    ggml_context * ctx = ops.ctx();
    const int64_t  V   = g->ne[0];
    if (head.weight->grad) {
        ggml_tensor * dw = product(
            ctx, ops.factor(ggml_transpose(ctx, x)), ggml_cont(ctx, ggml_transpose(ctx, g))
        );
        autograd.emit(ggml_add_inplace(ctx, real_rows(ctx, head.weight->grad, V), dw));
    }
    if (head.bias) {
        autograd.add_sum(head.bias->weight, g);
    }
    ggml_tensor * dx = columns(ctx, chunk.dx, chunk.begin, chunk.n);
    autograd.emit(ggml_cpy(ctx, product(ctx, chunk.w, g), dx));
}

static void own_products_back(
    Ops &         ops,
    const Head &  head,
    Autograd &    autograd,
    ggml_tensor * x,
    ggml_tensor * g,
    const Chunk & chunk
) {
    ggml_context * ctx = ops.ctx();
    ggml_tensor *  dy  = ops.other_factor(g);
    ggml_tensor *  dx  = columns(ctx, chunk.dx, chunk.begin, chunk.n);
    if (head.weight->grad) {
        ggml_tensor * beta = autograd.next_beta(head.weight->weight);
        autograd.emit(fused_inplace(ctx, kLinearBackW, head.weight->grad, {dy, x, beta}));
    }
    if (head.bias && head.bias->grad) {
        ggml_tensor * beta = autograd.next_beta(head.bias->weight);
        autograd.emit(fused_inplace(ctx, kSumRows, head.bias->grad, {dy, beta}));
    }
    autograd.emit(fused_inplace(ctx, kLinearBackX, dx, {dy, chunk.w}, {.i = {1, 0, 1}}));
}

// With cross entropy as a node of ours.
static void fused_chunk(
    Ops &              ops,
    ggml_cgraph *      graph,
    const Head &       head,
    const LossInputs & in,
    Autograd *         autograd,
    const Chunk &      chunk
) {
    ggml_context * ctx   = ops.ctx();
    const int64_t  begin = chunk.begin, n = chunk.n;
    const bool     own    = ops.own_products();
    ggml_tensor *  w      = own ? chunk.w : head.weight->weight;
    ggml_tensor *  x      = columns(ctx, chunk.x, begin, n);
    ggml_tensor *  logits = ops.linear(
         x, {w}, head.bias ? std::vector{head.bias->weight} : std::vector<ggml_tensor *>{}
    );
    const auto entropy = [&](ggml_tensor * x, ggml_tensor * labels, ggml_tensor * scale,
                             ggml_tensor * rows) {
        const FusedParams params = {
            .i = {static_cast<int32_t>(head.weight->ne[1]), autograd != nullptr},
            .f = {in.smoothing}};
        ggml_tensor * own_labels = elements(ctx, labels, begin, n);
        ggml_tensor * losses     = elements(ctx, rows, begin, n);
        ggml_tensor * y = fused_inplace(ctx, kCrossEntropy, x, {own_labels, scale, losses}, params);
        if (autograd && ops.rounds() && !in.mix_labels) {  // for products alone
            y = fused_as(ctx, y, GGML_TYPE_BF16);
        }
        ggml_build_forward_expand(graph, y);
        return y;
    };
    ggml_tensor * copy = in.mix_labels ? ggml_dup(ctx, logits) : nullptr;
    if (copy) {
        ggml_build_forward_expand(
            graph, copy
        );  // before the gradient takes the place of the logits
    }
    ggml_tensor * dlogits = entropy(logits, in.labels, in.scale, in.rows);
    if (copy) {
        copy    = entropy(copy, in.mix_labels, in.mix_scale, in.mix_rows);
        dlogits = ggml_add(ctx, dlogits, copy);
        ggml_build_forward_expand(graph, dlogits);
    }
    if (!autograd) {  // read, so that ggml gives its memory to the next chunk
        ggml_build_forward_expand(graph, ggml_cont(ctx, elements(ctx, dlogits, 0, 1)));
        return;
    }
    const auto back = own ? own_products_back : products_back;
    back(ops, head, *autograd, x, dlogits, chunk);
}

static void portable_chunk(
    Ops &              ops,
    ggml_cgraph *      graph,
    const Head &       head,
    const LossInputs & in,
    Autograd *         autograd,
    const Chunk &      chunk
) {
    ggml_context * ctx   = ops.ctx();
    const int64_t  begin = chunk.begin, n = chunk.n;
    const int64_t  V    = head.weight->ne[1];
    const float    e    = in.smoothing;
    const auto     emit = [&](ggml_tensor * t) { ggml_build_forward_expand(graph, t); };
    const auto     pick = [&](ggml_tensor * t, ggml_tensor * ids) {  // [V, n] -> [1, 1, n]
        return ggml_get_rows(ctx, ggml_reshape_3d(ctx, t, 1, V, n), ids);
    };
    ggml_tensor * w      = real_rows(ctx, ops.dequantized(head.weight->weight), V);
    ggml_tensor * x      = ggml_cont(ctx, columns(ctx, head.x, begin, n));
    ggml_tensor * mask   = columns(ctx, in.mask, begin, n);  // [1, n]
    ggml_tensor * logits = product(ctx, ops.factor(w), x);   // [V, n]
    if (head.bias) {
        logits = ggml_add(ctx, logits, head.bias->weight);
    }
    // logarithm of the sum of exponentials: the largest logit less the logarithm of its probability
    ggml_tensor * p       = ggml_soft_max(ctx, logits);
    ggml_tensor * largest = ggml_reshape_2d(ctx, ggml_argmax(ctx, logits), 1, n);
    ggml_tensor * log_sum =
        ggml_sub(ctx, pick(logits, largest), ggml_log(ctx, pick(p, largest)));  // [1, 1, n]

    // writes the loss of one set of labels and returns its gradient (null without autograd)
    const auto entropy = [&](ggml_tensor * targets, ggml_tensor * scale,
                             ggml_tensor * rows) -> ggml_tensor * {
        // loss = log_sum - (1-e) logits[label] - e mean(logits)
        ggml_tensor * ids  = columns(ctx, targets, begin, n);  // [1, n]
        ggml_tensor * loss = ggml_sub(ctx, log_sum, ggml_scale(ctx, pick(logits, ids), 1.0f - e));
        loss               = ggml_reshape_2d(ctx, loss, 1, n);
        if (e > 0.0f) {
            loss = ggml_sub(ctx, loss, ggml_scale(ctx, ggml_sum_rows(ctx, logits), e / V));
        }
        loss = ggml_mul(ctx, loss, mask);
        emit(ggml_cpy(ctx, ggml_reshape_1d(ctx, loss, n), elements(ctx, rows, begin, n)));
        if (!autograd) {
            return nullptr;
        }
        // gradient = softmax - (1-e) at the label - e/V, times mask and scale
        ggml_tensor * own   = in.mix_targets ? ggml_dup(ctx, p) : p;  // changed in place
        ggml_tensor * lower = ggml_scale_bias(ctx, pick(p, ids), 1.0f, e - 1.0f);
        ggml_tensor * g     = ggml_set_rows(ctx, ggml_reshape_3d(ctx, own, 1, V, n), lower, ids);
        g                   = ggml_reshape_2d(ctx, g, V, n);
        g                   = e > 0.0f ? ggml_scale_bias(ctx, g, 1.0f, -e / V) : g;
        return ggml_mul(ctx, g, ggml_mul(ctx, mask, scale));
    };
    ggml_tensor * g = entropy(in.targets, in.scale, in.rows);
    ggml_tensor * mix =
        in.mix_targets ? entropy(in.mix_targets, in.mix_scale, in.mix_rows) : nullptr;
    if (!autograd) {
        return;
    }
    g = mix ? ggml_add(ctx, g, mix) : g;
    products_back(ops, head, *autograd, x, g, chunk);
}

ggml_tensor * append_loss(
    Ops & ops, ggml_cgraph * graph, const Head & head, const LossInputs & in, Autograd * autograd
) {
    const bool    portable = ops.form() == Form::portable;
    const int64_t N        = head.x->ne[1];
    ggml_tensor * w        = head.weight->weight;
    const int64_t each     = chunk_columns(ops, !head.weight->grad, w->ne[1], N);
    Chunk         chunk;
    chunk.x = ops.other_factor(head.x);
    if (autograd) {
        chunk.dx = ggml_new_tensor_2d(ops.ctx(), GGML_TYPE_F32, head.x->ne[0], N);
    }
    if (ops.own_products()) {
        chunk.w = ops.form() == Form::fused ? w : ops.factor(w);
    } else if (autograd) {
        w       = ops.dequantized(w);
        w       = portable ? real_rows(ops.ctx(), w, head.weight->ne[1]) : w;
        chunk.w = ops.factor(ggml_transpose(ops.ctx(), w));
    }
    for (; chunk.begin < N; chunk.begin += each) {
        chunk.n = std::min(each, N - chunk.begin);
        (portable ? portable_chunk : fused_chunk)(ops, graph, head, in, autograd, chunk);
    }
    return chunk.dx;
}

ggml_tensor * append_logits(Ops & ops, ggml_cgraph * graph, const Head & head) {
    ggml_context * ctx    = ops.ctx();
    const int64_t  V      = head.weight->ne[1];
    ggml_tensor *  logits = ops.linear(
         head.x, {head.weight->weight},
        head.bias ? std::vector{head.bias->weight} : std::vector<ggml_tensor *>{}
    );
    if (logits->ne[0] != V) {
        logits = ggml_cont(ctx, ggml_view_2d(ctx, logits, V, logits->ne[1], logits->nb[1], 0));
    }
    ggml_set_output(logits);
    ggml_build_forward_expand(graph, logits);
    return logits;
}

}  // namespace gt
