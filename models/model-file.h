// models/model-file.h — a model in memory: sizes, weights as F32, tokenizer; to and from GGUF.
//
// load_model reads any GGUF of the architectures we train (F32, F16, BF16 or quantized), and the
// weights in our own checkpoints. save_model writes files that llama.cpp runs: weights only.
// Read next: arch.h (tensors and keys), ggml-train/run/checkpoint.h (the state of a run).
#pragma once

#include "ggml-cpp.h"
#include "models/arch.h"

#include <functional>

namespace gt {

struct ModelTensor {
    TensorSpec         spec;
    std::vector<float> data;
};

struct ModelFile {
    ModelConfig              config;
    std::vector<ModelTensor> tensors;  // in the order of tensor_specs(config)
    gguf_context_ptr         keys;     // tokenizer.* and general.*, unchanged; never null
    std::vector<std::string> notes;    // changes made while loading; usually empty

    // REQUIRES: the model has a tensor of this name.
    ModelTensor &       at(const std::string & name);
    const ModelTensor & at(const std::string & name) const;
};

// A model with all weights zero and no tokenizer; init.h fills the weights.
ModelFile empty_model(const ModelConfig & config);

// Reads a model, or throws an Error that names the file, what is wrong, and the next move.
ModelFile load_model(const std::string & path);

// The same for an adapter: the weights stay in the file, which is mapped; tensors are the initial A and B, or
// none if its rank is 0.
ModelFile load_for_adapter(const std::string & path, const LoraConfig & lora);

// Type of stored matrices and token embeddings; norms, biases and positions are always F32.
enum class WeightType { f32, f16, bf16, q8_0 };

// "f32", "F16", "bf16", "q8_0"; anything else is an Error.
WeightType parse_weight_type(const std::string & name);

struct WeightView {
    std::string            name;
    std::span<const float> values;
};

// The values of a tensor, valid until the next call.
using ReadTensor = std::function<std::span<const float>(const TensorSpec & spec)>;

// Writes weights that live elsewhere: all of them, in any order. An adapter becomes a file that llama.cpp's
// --lora loads. Atomic: a failure leaves no file. Returns notes to print: Q8_0 needs rows of a multiple
// of 32, other tensors fall back to F16.
std::vector<std::string> save_model(
    const std::string &  path,
    const ModelConfig &  config,
    const gguf_context * keys,
    const ReadTensor &   read,
    WeightType           type
);
std::vector<std::string> save_model(
    const std::string &         path,
    const ModelConfig &         config,
    const gguf_context *        keys,
    std::span<const WeightView> weights,
    WeightType                  type = WeightType::f32
);
std::vector<std::string>
save_model(const std::string & path, const ModelFile & model, WeightType type = WeightType::f32);

// Equal for two files exactly if their tokenizers are; 0: no tokenizer.
uint64_t tokenizer_digest(const gguf_context * keys);

}  // namespace gt
