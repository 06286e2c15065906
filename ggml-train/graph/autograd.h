// ggml-train/graph/autograd.h — the reverse pass: adds the nodes that compute gradients to a graph.
//
// One rule per op, in one table (autograd-rules.cpp for ggml's ops, autograd-fused.cpp for ours). A
// rule gets a node and the gradient arriving at it, and adds gradients to the node's sources. An op
// without a rule on the path to a parameter is an Error that names op and tensor.
//
// Gradients of parameters are added into their own tensors (Param::grad), which outlive the graph:
// the fused form first scales the old values by `beta` (0 on the first micro-batch, so that they need
// not be cleared), the other forms always add.
//
// Memory: a rule gets values of the forward pass by value(). It returns the tensor itself or, for tensors
// that are cheap or not kept, a copy of the node that recomputes it.
#pragma once

#include "ggml-train/graph/ops.h"
#include "ggml-train/model.h"

#include <unordered_map>

namespace gt {

enum class Recompute {
    cheap,  // norms and activations
    all,    // everything except tensors marked by Ops::keep: the inputs of the blocks
};

class Autograd {
public:
    // `beta` and `one`: F32 scalars; beta holds 0 or 1 when the graph runs.
    Autograd(
        Ops & ops, ggml_cgraph * graph, ggml_tensor * beta, ggml_tensor * one, Recompute recompute
    );

    // Requests the gradient of a parameter.
    void add_param(const Param & param);

    // Requests the gradient of another tensor; grad() returns it.
    void want(ggml_tensor * input) { needs_.insert(input); }

    // Emits the gradient nodes of everything that `root` depends on. `root_grad` emits and returns
    // the gradient of a loss with respect to root. REQUIRES: root is in the graph already.
    void run(ggml_tensor * root, const std::function<ggml_tensor *()> & root_grad);

    // The gradient that arrived at x, or null.
    ggml_tensor * grad(const ggml_tensor * x) const;

    // ---- for rules --------------------------------------------------------------------------------
    Ops &          ops() { return ops_; }
    ggml_context * ctx() { return ops_.ctx(); }

    bool needs(const ggml_tensor * x) const { return x && needs_.count(x) != 0; }

    // x as the forward pass computed it.
    ggml_tensor * value(ggml_tensor * x);

    // Adds g to the gradient of x, which is F32, or BF16 if x and g are. Does nothing if x needs none.
    void add(ggml_tensor * x, ggml_tensor * g);

    // The same for the gradient of x broadcast to a larger shape: sums over the copies of x.
    void add_sum(ggml_tensor * x, ggml_tensor * g);

    // Removes and returns the gradient of x so far, for rules whose kernel adds to it.
    ggml_tensor * take(ggml_tensor * x);

    // The accumulator of a parameter, or null; and the factor to scale it by before the next addition:
    // beta on the first call, then one.
    ggml_tensor * accumulator(const ggml_tensor * param) const;
    ggml_tensor * next_beta(const ggml_tensor * param);

    // Appends a node that is run for its side effect (an accumulation).
    void emit(ggml_tensor * node);

private:
    void backward(ggml_tensor * node);

    Ops &                                                  ops_;
    ggml_cgraph *                                          graph_;
    ggml_tensor *                                          beta_;
    ggml_tensor *                                          one_;
    Recompute                                              recompute_;
    std::unordered_set<const ggml_tensor *>                needs_;
    std::unordered_map<const ggml_tensor *, ggml_tensor *> grads_;
    std::unordered_map<const ggml_tensor *, ggml_tensor *> accumulators_;
    std::unordered_set<const ggml_tensor *>                written_;
    std::unordered_map<const ggml_tensor *, ggml_tensor *> again_;  // recomputed values
};

ggml_tensor * contiguous(Autograd & a, ggml_tensor * x);

// x in another type, unless it has it.
ggml_tensor * as_type(Autograd & a, ggml_tensor * x, ggml_type type);

// g summed over the copies of x that make up its shape.
ggml_tensor * sum_copies(Autograd & a, ggml_tensor * g, ggml_tensor * x);

// Null if there is none.
GradRule find_rule(const ggml_tensor * node);
GradRule find_fused_rule(const ggml_tensor * node);

}  // namespace gt
