// ggml-train/graph/ops.h — the layers that models are made of, as graph nodes.
//
// Each has a portable form, made of ggml primitives that run on any ggml backend, a fused CPU form
// (fused.h), and a form for devices: our kernels, except for products in F16, which are ggml's. All are
// differentiable by autograd.h and tested against each other, against finite differences and against PyTorch.
// Activations are [C, T*B]: one column per token.
#pragma once

#include "ggml-train/graph/fused.h"

#include <unordered_map>
#include <unordered_set>

namespace gt {

class Backend;

enum class Form { portable, fused, device };

enum class GeluKind { tanh, erf };

struct AttentionShape {
    int64_t T      = 0;  // tokens per sample
    int64_t H      = 0;  // query heads
    int64_t Hkv    = 0;  // key and value heads; H is a multiple of it
    int64_t D      = 0;  // head size
    bool    causal = true;
    int64_t window = 0;  // newest tokens that a token sees, itself among them; 0: all
    // I32 [T*B]: the place of each token in its segment; a token sees its own segment only. Null: a sample
    // is one segment. REQUIRES: causal, if this or a window is given.
    ggml_tensor * positions = nullptr;
};

// At position t pair i turns by t / divisors[i]; the result is multiplied by scale. neox: a pair is i and
// i + D/2, else two neighbours.
struct Rope {
    ggml_tensor * divisors = nullptr;  // F32 [D/2]
    float         scale    = 1.0f;
    bool          neox     = false;
};

class Autograd;

// A gradient rule: gradients of node's sources from the gradient g of node.
using GradRule = void (*)(Autograd & a, ggml_tensor * node, ggml_tensor * g);

class Ops {
public:
    // compute: type of products with weights; F32 only in the fused form. Weights stay F32: the graph converts copies.
    // BF16 on devices: attention and all activations that nodes of ours pass to each other have this type, too.
    // backend: runs the graph; null: any.
    Ops(ggml_context *  ctx,
        Form            form,
        ggml_type       compute = GGML_TYPE_F32,
        const Backend * backend = nullptr);

    ggml_context * ctx() const { return ctx_; }
    Form           form() const { return form_; }

    // Whether the backend runs this node of ggml's; otherwise others take its place.
    bool runs(const ggml_tensor * node) const;

    // One or more weights [C, M_i] side by side: [C, N] -> [M_0 + M_1 + ..., N]. biases: one per
    // weight, or none. residual [sum M, N] is added if given. Weights that are not trained may have any
    // type.
    ggml_tensor * linear(
        ggml_tensor *                      x,
        const std::vector<ggml_tensor *> & weights,
        const std::vector<ggml_tensor *> & biases   = {},
        ggml_tensor *                      residual = nullptr
    );

    // The same for F32 weights [K, M_i] that have rows of x [n K, N] of their own: one block each.
    ggml_tensor * linear_blocks(
        ggml_tensor * x, const std::vector<ggml_tensor *> & weights, ggml_tensor * residual
    );

    ggml_tensor * layer_norm(ggml_tensor * x, ggml_tensor * w, ggml_tensor * b, float eps);
    ggml_tensor * rms_norm(ggml_tensor * x, ggml_tensor * w, float eps);
    ggml_tensor * gelu(ggml_tensor * x, GeluKind kind);
    ggml_tensor * swiglu(ggml_tensor * gate, ggml_tensor * up);

    // Drops values of x [C, T*B] at `rate` from here on; keys: I32 [B], of the batch. Fused form only.
    void          set_dropout(float rate, ggml_tensor * keys);
    ggml_tensor * dropout(ggml_tensor * x);  // x itself, unless it was set

    // Rotates the first n_rot of n_heads heads of each token by its position in the sample.
    ggml_tensor *
    rope(ggml_tensor * x, int64_t T, int64_t n_heads, int64_t n_rot, int64_t D, const Rope & rope);

    // qkv [(H + 2 Hkv) D, T*B] -> [H D, T*B].
    ggml_tensor * attention(ggml_tensor * qkv, const AttentionShape & shape);

    // Rows of `table` [C, V] by `ids` I32 [T*B], plus row t of `positions` [C, >= T] if given.
    ggml_tensor *
    embedding(ggml_tensor * table, ggml_tensor * ids, ggml_tensor * positions, int64_t T);

    // images [W, H, channels, B], kernel [P, P, channels, C] -> [C, patches * B].
    ggml_tensor * patch_embedding(ggml_tensor * images, ggml_tensor * kernel, ggml_tensor * bias);

    // A weight as a factor of products: contiguous, in the compute type.
    ggml_tensor * factor(ggml_tensor * w);

    // Whether products with weights are nodes of ours: kLinear, kLinearBackX, kLinearBackW.
    bool own_products() const;

    // Whether the factors of products of ours are BF16.
    bool rounds() const { return form_ == Form::device && compute_ == GGML_TYPE_BF16; }

    // An activation or gradient as the other factor of products of ours: the same for all of them.
    ggml_tensor * other_factor(ggml_tensor * x);

    // x as BF16 if the node of ours that makes it can write that, together with all that it reads in its own type;
    // else null. x itself then is not in the graph, unless a node of ggml's reads it, too.
    ggml_tensor * narrowed(ggml_tensor * x);

    // A frozen weight in a type that can be viewed and transposed: quantized ones as F32.
    ggml_tensor * dequantized(ggml_tensor * w);

    // Marks a tensor to keep in memory for the reverse pass even if all others are recomputed.
    ggml_tensor * keep(ggml_tensor * x) {
        kept_.insert(x);
        return x;
    }
    bool is_kept(const ggml_tensor * x) const { return kept_.count(x) != 0; }

    // The rule of a node that ends a layer made of several, in place of their own; null: it has none.
    GradRule rule_of(const ggml_tensor * x) const {
        const auto found = rules_.find(x);
        return found == rules_.end() ? nullptr : found->second;
    }

private:
    ggml_tensor * attention_portable(ggml_tensor * qkv, const AttentionShape & shape);
    ggml_tensor * window_positions(const AttentionShape & shape, int64_t B);
    ggml_tensor * segment_mask(const AttentionShape & shape, int64_t B);
    ggml_tensor * causal_mask(int64_t T);
    ggml_tensor * leaf(int64_t ne0, int64_t ne1 = 1);

    ggml_context *                                    ctx_;
    Form                                              form_;
    ggml_type                                         compute_;
    const Backend *                                   backend_;
    float                                             dropout_      = 0.0f;
    ggml_tensor *                                     dropout_keys_ = nullptr;
    int32_t                                           n_dropouts_   = 0;
    std::unordered_set<const ggml_tensor *>           kept_;
    std::unordered_map<const ggml_tensor *, GradRule> rules_;
    std::unordered_map<int64_t, ggml_tensor *>        masks_;  // by T
    std::unordered_map<ggml_tensor *, ggml_tensor *>  narrowed_;
};

// w * x (ggml_mul_mat). Sums are F32 even if w is F16, where backends would take F16: they overflow.
ggml_tensor * product(ggml_context * ctx, ggml_tensor * w, ggml_tensor * x);

}  // namespace gt
