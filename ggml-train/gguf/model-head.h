// ggml-train/gguf/model-head.h — a model as plain data: its tensors by name, shape and kind, and the
// keys of its file. The engine sees a model only through these; models/ fills them in.
#pragma once

#include "ggml-cpp.h"
#include "ggml-train/base/base.h"
#include "ggml-train/optimizer.h"

#include <array>

namespace gt {

enum class Init { zeros, ones, normal, trunc_normal };  // trunc_normal: cut at two deviations

// One tensor of a model, in llama.cpp's name and layout (ne[0] first). kind decides weight decay and
// learning rate: norms and biases are vectors; tables that are looked up or added (tokens, positions,
// class token) are embeddings.
struct TensorSpec {
    std::string            name;
    std::array<int64_t, 4> ne{1, 1, 1, 1};
    ParamKind              kind = ParamKind::matrix;
    Init                   init = Init::normal;
    float                  std  = 0.02f;  // of normal and trunc_normal
    float                  rate = 1.0f;   // factor on the learning rate; 0: frozen
    bool per_token              = false;  // one row per token; memory and files may pad the rows

    int64_t n_elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};

// Everything in a model file except the weights.
struct ModelHead {
    gguf_context_ptr        keys;     // sizes, tokenizer, general.*
    std::string             text;     // one line that differs whenever the sizes differ
    std::vector<TensorSpec> tensors;  // in file order

    // Tensors of the file that are not trained (factors of RoPE).
    std::vector<std::pair<TensorSpec, std::vector<float>>> constants;
};

}  // namespace gt
