// ggml-train/model-config.h — what a model is: its architecture, its sizes, and the table of its
// tensors in llama.cpp's names and layouts (ne[0] first). Plain data: no weights, no graph.
//
// gpt2 and llama are what llama.cpp runs; vit has the tensor names of llama.cpp's image encoders
// (`v.*`), a classifier `v.cls`, and keys `vit.*` of our own.
// Read next: model-file.h (a model with its weights), models/presets.h (named sizes).
#pragma once

#include "ggml-train/base.h"
#include "ggml-train/optimizer.h"

#include <array>

struct gguf_context;

namespace gt {

struct ModelConfig {
    std::string arch;           // "gpt2", "llama" or "vit"
    int64_t     n_embd    = 0;  // C
    int64_t     n_layer   = 0;  // L
    int64_t     n_head    = 0;  // H
    int64_t     n_head_kv = 0;  // llama: key and value heads, a divisor of n_head; else n_head
    int64_t     n_ff      = 0;  // width inside the mlp
    float       norm_eps  = 1e-5f;

    // gpt2, llama
    int64_t n_vocab        = 0;     // V: rows of the embedding, as many as the tokenizer has tokens
    int64_t n_ctx          = 0;     // T: longest sequence
    bool    tied           = true;  // the output matrix is the token embedding
    float   rope_freq_base = 10000.0f;  // llama

    // vit
    int64_t                  image_size = 0;  // pixels, height = width
    int64_t                  patch_size = 0;
    int64_t                  channels   = 0;
    int64_t                  n_classes  = 0;
    std::string              pooling = "cls";  // "cls": class token first; "mean": no class token
    std::vector<float>       image_mean;       // per channel, of pixels in [0, 1]; empty: unknown,
    std::vector<float>       image_std;        // training measures them
    float                    image_crop   = 0.0f;  // share of the shorter side that is looked at
    int64_t                  image_stored = 0;     // shorter side that pictures are first brought to
    std::vector<std::string> class_names;  // empty or n_classes of them

    int64_t head_dim() const { return n_embd / n_head; }  // D
    int64_t n_patches() const { return (image_size / patch_size) * (image_size / patch_size); }
    bool    has_class_token() const { return pooling == "cls"; }
    int64_t n_positions() const { return n_patches() + (has_class_token() ? 1 : 0); }  // vit
};

enum class Init { zeros, ones, normal, trunc_normal };

// One tensor of a model. kind decides decay and rates: a vector is a norm or a bias; tables that
// are looked up or added (tokens, positions, class token) are embeddings.
struct TensorSpec {
    std::string            name;
    std::array<int64_t, 4> ne{1, 1, 1, 1};
    ParamKind              kind = ParamKind::matrix;
    Init                   init = Init::normal;
    float                  std  = 0.02f;  // of normal and trunc_normal (cut at two)

    int64_t n_elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};

// Every tensor of such a model, in the order of the forward pass. REQUIRES: check_config passed.
std::vector<TensorSpec> tensor_specs(const ModelConfig & config);

// Number of weights in it; a tied output matrix counts once.
int64_t n_params(const ModelConfig & config);

// Throws an Error that begins with `where` if the sizes contradict one another.
void check_config(const ModelConfig & config, const std::string & where);

// The hyper-parameters of a GGUF; `where` (the file) begins every Error. n_vocab and tied are set
// from keys and tensors, whichever are there.
ModelConfig read_config(const gguf_context * gguf, const std::string & where);

// Sets llama.cpp's keys (vit: our own); keys of other meanings stay as they are.
void write_config(const ModelConfig & config, gguf_context * gguf);

// One line for people: "gpt2, 12 layers, 768 wide, 12 heads, context 1024, vocabulary 50257".
std::string describe(const ModelConfig & config);

}  // namespace gt
