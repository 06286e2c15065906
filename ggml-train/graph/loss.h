// ggml-train/graph/loss.h — logits, cross entropy and their gradients, a chunk of columns at a time.
//
// With a large vocabulary the logits are the largest tensor. So the head computes its gradients together
// with its logits, chunk by chunk: logits, loss, gradient of the logits (in place), then of weight, bias
// and x. Chunks share their memory. The reverse pass of the rest starts from the gradient of x.
#pragma once

#include "ggml-train/graph/autograd.h"

namespace gt {

struct LossInputs {
    ggml_tensor * labels    = nullptr;  // I32 [N], < 0: ignored
    ggml_tensor * targets   = nullptr;  // I32 [1, N]: labels, 0 where ignored
    ggml_tensor * mask      = nullptr;  // F32 [1, N]: 0 where ignored, else 1
    ggml_tensor * scale     = nullptr;  // F32 scalar: factor of the gradients
    ggml_tensor * rows      = nullptr;  // F32 [N], written: the loss of each column
    float         smoothing = 0.0f;

    // Mixup: a second label for each column, with a separate scale and loss; or all null.
    ggml_tensor * mix_labels  = nullptr;
    ggml_tensor * mix_targets = nullptr;
    ggml_tensor * mix_scale   = nullptr;
    ggml_tensor * mix_rows    = nullptr;
};

// Appends the loss to the graph. With `autograd`: also the gradients of head.weight and head.bias,
// and returns the gradient of head.x; else null.
ggml_tensor * append_loss(
    Ops & ops, ggml_cgraph * graph, const Head & head, const LossInputs & in, Autograd * autograd
);

// Appends all logits [V, N] and returns them.
ggml_tensor * append_logits(Ops & ops, ggml_cgraph * graph, const Head & head);

}  // namespace gt
