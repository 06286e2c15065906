#include "ggml-train/graph/epilogues.h"

#include "ggml-train/cpu/kernels.h"
#include "ggml-train/graph/fused.h"

#include <algorithm>
#include <ggml-impl.h>

namespace gt {

// One product with a weight, to a matrix of its own.
static bool is_product(const ggml_tensor * node, const FusedOp & op) {
    return fused_op(node) == &op && node->type == GGML_TYPE_BF16 && !node->view_src &&
           fused_params(node).i[0] == 1;
}

static bool is_gelu(const ggml_tensor * node, const FusedOp & op) {
    return fused_op(node) == &op && cpu::Gelu(fused_params(node).i[0]) == cpu::Gelu::tanh;
}

static bool is_read_after(const ggml_cgraph * graph, int i, const ggml_tensor * x) {
    return std::any_of(graph->nodes + i + 1, graph->nodes + graph->n_nodes, [&](auto * node) {
        return std::find(node->src, node->src + GGML_MAX_SRC, x) != node->src + GGML_MAX_SRC;
    });
}

// Whether node i has become one with the node before it.
static bool join(ggml_cgraph * graph, int i, ggml_tensor * product, bool forward) {
    ggml_tensor * node = graph->nodes[i];
    if (forward && is_product(product, kLinear) && is_gelu(node, kGelu) &&
        node->src[0] == product) {
        fused_extend(node, product, product);
        product->op = GGML_OP_NONE;  // only memory from now on
        std::fill(std::begin(product->src), std::end(product->src), nullptr);
        return true;
    }
    if (is_product(product, kLinearBackX) && is_gelu(node, kGeluBack) && node->src[1] == product &&
        !is_read_after(graph, i, product)) {
        fused_extend(node, product, node->src[0]);
        return true;
    }
    return false;
}

void join_gelus(ggml_cgraph * graph, int n_forward) {
    int n = 0;
    for (int i = 0; i < graph->n_nodes; ++i) {
        n -= n > 0 && join(graph, i, graph->nodes[n - 1], i < n_forward) ? 1 : 0;
        graph->nodes[n++] = graph->nodes[i];
    }
    graph->n_nodes = n;
}

}  // namespace gt
