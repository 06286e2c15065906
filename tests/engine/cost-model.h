// tests/engine/cost-model.h — what a training graph costs on a GPU: counted in the real graph, with a time
// estimated from data sheets. No GPU was asked: the times are good for comparing two graphs.
#pragma once

#include "ggml-train/graph/fused.h"

#include <algorithm>
#include <ggml-impl.h>
#include <string>

namespace gt {

struct Cost {
    double bytes = 0, nodes = 0, transposes = 0, switches = 0;
    double times[2]{};  // seconds, on kCards
};

// Data-sheet figures, and the parts of them that kernels of this kind reach.
struct Card {
    const char * name;
    double       bandwidth;  // bytes per second, 88 % of the memory's
    double       bf16;       // FLOP per second of large products with tensor cores: 80 and 85 %
    double       f32;        // FLOP per second without them, at most
    double elements;  // per second that ggml's untiled copy moves: 220 integer instructions each
    double cache;     // bytes
    double former;    // tokens per second of GPT-2 124M by this model, before products of our own
};
constexpr Card kCards[] = {
    {"RTX 4090", 1008e9 * 0.88, 165.2e12 * 0.80, 82.6e12, 128 * 64 * 2.52e9 / 220, 72e6, 40e3},
    {"RTX 3060", 360e9 * 0.88, 25.4e12 * 0.85, 12.7e12, 28 * 64 * 1.78e9 / 220, 3e6, 8.2e3},
};
constexpr double kWait           = 15e-6;  // until the host resumes, once
constexpr double kSwitch         = 5e-6;   // until a stream resumes that waits for another one
constexpr double kAttentionF32   = 0.16;   // of the peak: read off its machine code
constexpr double kAttentionMma   = 0.40;   // of large products, a usual share
constexpr double kBytesPerBlockS = 27e9;   // that a block of a column sum reads in a second

inline bool is_op(const ggml_tensor * node, const FusedOp & op) {
    return fused_op(node) == &op;
}

// Bytes that a node reads and writes once; views cost nothing.
inline double bytes_of(const ggml_tensor * node) {
    const bool sparse = node->op == GGML_OP_GET_ROWS || node->op == GGML_OP_SET_ROWS;
    double     bytes  = 0;
    for (const ggml_tensor * src : node->src) {
        // the table is not read as a whole; the target of SET_ROWS and a cast's own memory not at all
        const bool skipped = !src || src == node ||
                             (sparse && ggml_nelements(src) > ggml_nelements(node)) ||
                             (node->op == GGML_OP_SET_ROWS && src == node->src[2]);
        bytes += skipped ? 0.0 : static_cast<double>(ggml_nbytes(src));
    }
    const ggml_tensor * out = node->op == GGML_OP_SET_ROWS ? node->src[0] : node;
    return bytes + static_cast<double>(ggml_nbytes(out));
}

// Operations of products; 0: it is none.
inline double product_flop(const ggml_tensor * node) {
    const auto of = [](const ggml_tensor * weight, const ggml_tensor * columns) {
        return 2.0 * static_cast<double>(ggml_nelements(weight)) *
               static_cast<double>(ggml_nrows(columns));
    };
    if (node->op == GGML_OP_MUL_MAT) {
        return of(node->src[0], node->src[1]);
    }
    if (is_op(node, kLinearBackW)) {
        return of(node, node->src[1]);
    }
    const bool back = is_op(node, kLinearBackX);
    if (!back && !is_op(node, kLinear)) {
        return 0.0;
    }
    const FusedParams p     = fused_params(node);
    const int         first = back ? p.i[2] + 1 + p.i[1] : 1;
    double            flop  = 0.0;
    for (int i = 0; i < p.i[0]; ++i) {
        flop += of(node->src[first + i], node);
    }
    return flop;
}

inline double time_of(const ggml_tensor * node, const Card & card) {
    double bytes = bytes_of(node);
    if (const double flop = product_flop(node)) {
        double convert = 0.0;
        if (node->op == GGML_OP_MUL_MAT && node->src[0]->type != node->src[1]->type) {
            convert = 6.0 * static_cast<double>(ggml_nelements(node->src[1])) / card.bandwidth;
        }
        return convert + std::max(flop / card.bf16, bytes / card.bandwidth);
    }
    const bool back = is_op(node, kAttentionBack);
    if (back || is_op(node, kAttention)) {
        const FusedParams p      = fused_params(node);  // T, H, Hkv, D, causal
        const bool        bf16   = node->type == GGML_TYPE_BF16;
        const double      tokens = static_cast<double>(ggml_nrows(node));
        const double      pairs  = tokens * p.i[1] * p.i[0] / 2;
        const double      flop   = (back ? 7 : 2) * 2 * pairs * p.i[3];
        return flop / (bf16 ? card.bf16 * kAttentionMma : card.f32 * kAttentionF32);
    }
    double time = 0.0;
    if (is_op(node, kSumRows) || is_op(node, kNormBackW)) {
        const double blocks = static_cast<double>(node->ne[0]) / 32;
        time                = bytes / (blocks * kBytesPerBlockS);
    }
    if (is_op(node, kCrossEntropy)) {  // it reads twice
        const auto logits = static_cast<double>(ggml_nbytes(node->src[0]));
        bytes += logits < card.cache ? 0.0 : logits;
    }
    const bool copies = node->op == GGML_OP_CONT || node->op == GGML_OP_CPY;
    if (copies && ggml_is_transposed(node->src[0]) && node->type != GGML_TYPE_F32) {
        time = static_cast<double>(ggml_nelements(node)) / card.elements;
    }
    return std::max(time, bytes / card.bandwidth);
}

// switches: between our stream and ggml's (compute.cpp), if our nodes run on a device.
inline Cost count_cost(ggml_cgraph * graph) {
    Cost cost;
    int  last = -1;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        if (ggml_op_is_empty(node->op)) {
            continue;
        }
        const int ours = find_device_run(node) ? 1 : 0;
        cost.switches += last >= 0 && ours != last ? 1 : 0;
        last = ours;
        cost.nodes += 1;
        cost.bytes += bytes_of(node);
        const bool copies = node->op == GGML_OP_CONT || node->op == GGML_OP_CPY;
        cost.transposes += copies && ggml_is_transposed(node->src[0]) ? 1 : 0;
        for (size_t c = 0; c < std::size(kCards); ++c) {
            cost.times[c] += time_of(node, kCards[c]);
        }
    }
    for (double & time : cost.times) {
        time += cost.switches * kSwitch + kWait;
    }
    return cost;
}

}  // namespace gt
