// models/generate.h — lets a model write: libllama underneath, so what is seen here is what llama.cpp
// will do with the file.
#pragma once

#include "ggml-train/model-file.h"

#include <functional>

struct llama_context;
struct llama_model;

namespace gt {

struct GenerateOptions {
    int64_t  n_tokens    = 200;
    float    temperature = 0.8f;  // 0: always the likeliest token
    int      top_k       = 40;    // 0: all
    float    top_p       = 0.95f;
    uint64_t seed        = 1;

    template <class Visit>
    void visit(Visit && visit) {
        visit("tokens,n", n_tokens, "tokens to write at most");
        visit("temperature", temperature, "0: always the likeliest token");
        visit("top-k", top_k, "choose among the k likeliest; 0: all");
        visit("top-p", top_p, "choose among the likeliest that make up this share");
        visit("seed", seed, "the same seed gives the same text");
    }
};

class Generator {
public:
    // threads: 0: all cores. An Error says why llama.cpp cannot load the file.
    explicit Generator(const std::string & path, int threads = 0);
    ~Generator();
    Generator(const Generator &)             = delete;
    Generator & operator=(const Generator &) = delete;

    // Continues a prompt until the text ends, n_tokens are written or `piece` returns false; piece is
    // called with each bit of text (which may be part of a character). Returns the continuation.
    // Beyond the model's context the older half is forgotten.
    std::string
    run(const std::string &                              prompt,
        const GenerateOptions &                          options,
        const std::function<bool(const std::string &)> & piece = {});

    // Logits after each token of a text: n_tokens rows of the vocabulary's size.
    // REQUIRES: at most context() tokens.
    std::vector<float> logits(std::span<const int32_t> tokens);

    int64_t context() const;

private:
    void decode(std::span<const int32_t> tokens);

    std::unique_ptr<llama_model, void (*)(llama_model *)>     model_;
    std::unique_ptr<llama_context, void (*)(llama_context *)> context_;
};

// The same for weights in a trainer's memory, through a file in `folder` that is removed again.
std::string generate_from(
    const ModelConfig &         config,
    const gguf_context *        keys,
    std::span<const WeightView> weights,
    const std::string &         folder,
    const std::string &         prompt,
    const GenerateOptions &     options,
    int                         threads = 0
);

}  // namespace gt
