// ggml-train/graph/fused.h — our own graph nodes: ggml custom nodes that run the kernels of cpu/kernels.h,
// or, on a device, those of cuda/kernels.h.
//
// A fused node is a GGML_OP_CUSTOM whose userdata points at its row in one table (FusedOp), so that
// autograd and devices can identify it. Its scalar parameters are stored in the free bytes of op_params.
// A second output (softmax sums, norm statistics) is a leaf passed as a source.
// Read next: ops.cpp (builds them), autograd-fused.cpp (their gradients), fused-device.cpp.
#pragma once

#include "ggml-train/base/base.h"

#include <array>
#include <ggml.h>

namespace gt {

namespace cuda {
struct Kernels;
}

// Scalar parameters of one node; fused.cpp says which op uses which.
struct FusedParams {
    std::array<int32_t, 6> i{};
    std::array<float, 3>   f{};
};

struct FusedOp {
    const char * name;
    bool         cheap;  // cheaper to recompute in the reverse pass than to keep
    void (*run)(const ggml_tensor * node, const FusedParams & params, int part, int n_parts);
};

// The table. Arguments (sources) in the order given. On devices activations and their gradients may be BF16: a node's
// gradient has its type, or is F32 (autograd.h); kernels.h says which types go together.
extern const FusedOp
    kLinear;  // x, n weights, n biases or none, residual or none, sum before GELU or none
extern const FusedOp kLinearBackX;    // dy, add or none, n weights, sum before GELU or none
extern const FusedOp kLinearBackW;    // [grad], dy, x, beta, sums of dy or none
extern const FusedOp kSumRows;        // [grad], dy, beta
extern const FusedOp kLayerNorm;      // x, w, b, stats
extern const FusedOp kRmsNorm;        // x, w, stats
extern const FusedOp kNormBackX;      // dy, x, w, stats, add or none
extern const FusedOp kNormBackW;      // [grad w], dy, x, stats, beta, grad b or none
extern const FusedOp kGelu;           // x
extern const FusedOp kGeluBack;       // x, dy
extern const FusedOp kSwiglu;         // gate, up
extern const FusedOp kSwigluBack;     // gate, up, dy: both gradients, one after the other
extern const FusedOp kDropout;        // x, keys
extern const FusedOp kRope;           // x, divisors
extern const FusedOp kAttention;      // qkv, lse, positions or none
extern const FusedOp kAttentionBack;  // qkv, o, lse, do, scratch (devices), positions or none
extern const FusedOp kEmbedding;      // table, ids, positions or none
extern const FusedOp kEmbeddingBack;  // [grad], dx, ids, beta
extern const FusedOp kPositionBack;   // [grad], dx, beta
extern const FusedOp kCrossEntropy;   // [logits], labels, scale, loss
extern const FusedOp kAccumulate;     // [grad], g, beta

// A new node of shape ne.
ggml_tensor * fused_node(
    ggml_context *                     ctx,
    const FusedOp &                    op,
    std::array<int64_t, 4>             ne,
    const std::vector<ggml_tensor *> & args,
    const FusedParams &                params = {},
    ggml_type                          type   = GGML_TYPE_F32
);

// A new node that computes what `node` does, in another type.
ggml_tensor * fused_as(ggml_context * ctx, const ggml_tensor * node, ggml_type type);

// A node that changes `target` in place (it is the first source).
ggml_tensor * fused_inplace(
    ggml_context *                     ctx,
    const FusedOp &                    op,
    ggml_tensor *                      target,
    const std::vector<ggml_tensor *> & args,
    const FusedParams &                params = {}
);

// Makes `node` compute what `from` does, and of that the GELU or its slope (linear-products.h), with one more source.
void fused_extend(ggml_tensor * node, const ggml_tensor * from, ggml_tensor * inner);

// The row of the table, or null if the node is not ours.
const FusedOp * fused_op(const ggml_tensor * node);
FusedParams     fused_params(const ggml_tensor * node);

// Starts a node's kernels on the default stream of a device. Gradients are always added, beta is
// ignored: on devices the first micro-batch of a step clears them before it runs.
using DeviceRun =
    void (*)(const cuda::Kernels & kernels, const ggml_tensor * node, const FusedParams & params);

// Null if the node is ggml's, or has no kernel for devices. Of ggml's only casts to and from BF16 are run by us.
DeviceRun find_device_run(const ggml_tensor * node);

}  // namespace gt
