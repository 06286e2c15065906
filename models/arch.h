// models/arch.h — the table of architectures, and everything that is looked up in it.
//
// To add an architecture: write a file like arch/gpt.cpp, which holds its tensors, GGUF keys, checks, graph
// and presets, and add its row to architectures(). No other file compares names of architectures.
// Read next: arch/gpt.cpp (the shortest row), arch-parts.h (helpers for rows), blocks.h (graphs).
#pragma once

#include "ggml-train/gguf/model-head.h"
#include "models/model-config.h"

namespace gt {

class Backend;
class Checks;
class KeyReader;
class KeyWriter;
class SpecList;
class Transformer;

enum class Takes { text, images };

struct Preset {
    std::string name;
    std::string tokenizer;  // text: "bytes" or the name of a vocabulary (tokenizer.h)
    std::string help;
    ModelConfig config;  // n_vocab is 0 until a tokenizer is chosen
};

// One architecture. The common sizes (width, layers, heads, MLP) are read, written and checked for
// every row; the functions add what is specific to theirs.
struct Arch {
    std::string         name;  // general.architecture in GGUF files
    Takes               takes = Takes::text;
    std::vector<Preset> presets;
    ModelConfig         defaults;  // sizes to start from without a preset
    int64_t (*mlp_width)(int64_t width);
    bool ties_equal_output = false;  // loading ties an output matrix that equals the embedding

    void (*tensors)(const ModelConfig & config, SpecList & list);  // in order of the forward pass
    void (*read_keys)(const KeyReader & in, ModelConfig & config);
    void (*write_keys)(const ModelConfig & config, const KeyWriter & out);
    void (*check)(const ModelConfig & config, const Checks & checks);
    std::unique_ptr<Transformer> (*make
    )(const Backend & backend, const ModelConfig & config, bool with_grads);
};

// The table. A program may append rows before it uses them.
std::vector<Arch> & architectures();

// Names of all rows.
std::vector<std::string> arch_names();

// The row of that name; throws an Error that lists the known names and begins with `where`.
const Arch & find_arch(const std::string & name, const std::string & where = "");

bool takes_images(const ModelConfig & config);

// All tensors of a model's file. REQUIRES: check_config passed.
std::vector<TensorSpec> base_specs(const ModelConfig & config);

// The tensors that are trained, exchanged and saved: all, or those of the adapter.
std::vector<TensorSpec> tensor_specs(const ModelConfig & config);

// Number of weights that are trained; a tied output matrix counts once.
int64_t n_params(const ModelConfig & config);

// Throws an Error that begins with `where` if the sizes are invalid.
void check_config(const ModelConfig & config, const std::string & where);

// Reads and checks the sizes in a GGUF; every Error begins with `where`, the file. n_vocab and tied
// come from keys and tensors, whichever are present.
ModelConfig read_config(const gguf_context * gguf, const std::string & where);

// Sets llama.cpp's keys (for images our own, `vit.*`); other keys are kept.
void write_config(const ModelConfig & config, gguf_context * gguf);

// "gpt2, 12 layers, 768 wide, 12 heads, context 1024, vocabulary 50257, 124.4M weights". Stored in
// checkpoints to recognize their model, so the format must not change.
std::string describe(const ModelConfig & config);

// Keys, description and tensors of a model; `keys` (may be null) are copied first.
ModelHead model_head(const ModelConfig & config, const gguf_context * keys);

// A model's graphs and weights, all zero. with_grads: false for evaluation only.
std::unique_ptr<Transformer>
make_model(const Backend & backend, const ModelConfig & config, bool with_grads);

}  // namespace gt
