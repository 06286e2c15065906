// ggml-train/model-file.h — a model in memory: sizes, weights as F32, tokenizer; from and to GGUF.
//
// load_model reads any GGUF of the architectures we train (F32, F16, BF16, or quantised), and the
// weights in our own checkpoints. save_model writes what llama.cpp runs: weights only.
// Read next: model-config.h (names and shapes), checkpoint.h (everything a run needs to go on).
#pragma once

#include "ggml-cpp.h"
#include "ggml-train/model-config.h"

namespace gt {

struct ModelTensor {
    TensorSpec         spec;
    std::vector<float> data;
};

struct ModelFile {
    ModelConfig              config;
    std::vector<ModelTensor> tensors;  // in the order of tensor_specs(config)
    gguf_context_ptr         keys;     // tokenizer.* and general.*, as they were; never null
    std::vector<std::string> notes;    // what loading changed, for people; usually empty

    // REQUIRES: the model has a tensor of this name.
    ModelTensor &       at(const std::string & name);
    const ModelTensor & at(const std::string & name) const;
};

// A model of this shape, all weights zero, without tokenizer. (models/init.h fills it.)
ModelFile empty_model(const ModelConfig & config);

// Reads a model, or throws an Error that names the file, what is wrong, and the next move.
ModelFile load_model(const std::string & path);

// Matrices and token embeddings are stored as this; norms, biases, positions always as F32.
enum class WeightType { f32, f16, bf16, q8_0 };

// "f32", "F16", "bf16", "q8_0"; anything else is an Error.
WeightType parse_weight_type(const std::string & name);

struct WeightView {
    std::string            name;
    std::span<const float> values;
};

// Writes weights that live elsewhere (a trainer's memory), in any order but complete; at once or not
// at all. Returns notes for people: Q8_0 needs rows of a multiple of 32, others are kept as F16.
std::vector<std::string> save_model(
    const std::string &         path,
    const ModelConfig &         config,
    const gguf_context *        keys,
    std::span<const WeightView> weights,
    WeightType                  type = WeightType::f32
);
std::vector<std::string>
save_model(const std::string & path, const ModelFile & model, WeightType type = WeightType::f32);

// The same for two files exactly if they turn text into the same tokens; 0: no tokenizer.
uint64_t tokenizer_digest(const gguf_context * keys);

}  // namespace gt
