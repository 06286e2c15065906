// ggml-train/model.h — interface: a model is a list of stages (embed, equal blocks, head) that build
// graph nodes. models/ implements it; graph.cpp strings the stages together and adds loss and
// reverse pass.
#pragma once

#include "ggml-train/optimizer.h"

#include <ggml.h>

namespace gt {

class Ops;

// A trainable tensor. `weight` and `grad` may have more rows than the real shape `ne` says: sizes
// that are bad for the kernels are padded with zero rows, which no optimizer sees.
struct Param {
    std::string            name;
    std::array<int64_t, 4> ne{1, 1, 1, 1};
    ParamKind              kind   = ParamKind::matrix;
    ggml_tensor *          weight = nullptr;
    ggml_tensor *          grad   = nullptr;  // null: frozen
    float                  rate   = 1.0f;     // as in ParamView
};

// What a graph is fed with. Which of them a model reads is its own business.
struct Inputs {
    int64_t       B         = 0;        // samples
    int64_t       T         = 0;        // tokens per sample
    ggml_tensor * tokens    = nullptr;  // I32 [T*B]
    ggml_tensor * images    = nullptr;  // F32 [W, H, channels, B]
    ggml_tensor * positions = nullptr;  // I32 [T*B]: of tokens in their segments, or null (batch.h)
    ggml_tensor * dropout   = nullptr;  // I32 [B]: keys of the samples, or null (batch.h)
    ggml_tensor * depth = nullptr;  // F32 [2*blocks, B]: factors of the residual branches, or null
};

// The last stage's product: logits = weight * x (+ bias), one column per label.
struct Head {
    ggml_tensor * x      = nullptr;  // [C, n_labels]
    const Param * weight = nullptr;  // [C, V]
    const Param * bias   = nullptr;  // [V] or null
};

class Model {
public:
    virtual ~Model() = default;

    virtual std::vector<Param> & params()         = 0;
    virtual int                  n_blocks() const = 0;

    virtual ggml_tensor * embed(Ops & ops, const Inputs & in) = 0;  // [C, T*B]
    virtual ggml_tensor *
                 block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) = 0;  // [C, T*B]
    virtual Head head(Ops & ops, const Inputs & in, ggml_tensor * x)         = 0;
};

}  // namespace gt
