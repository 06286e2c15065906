// models/text/generate.h — samples text from a model file through libllama, exactly as llama.cpp will.
#pragma once

#include "models/model-file.h"

#include <functional>

struct llama_context;
struct llama_model;

namespace gt {

struct GenerateOptions {
    int64_t  n_tokens    = 200;   // -1: no limit
    float    temperature = 0.8f;  // 0: greedy
    int      top_k       = 40;    // 0: all
    float    top_p       = 0.95f;
    uint64_t seed        = 1;
    bool special = false;  // the prompt has names of special tokens, as chat templates write them

    template <class Visit>
    void visit(Visit && visit) {
        visit("tokens,n", n_tokens, "tokens to sample; -1: until the text ends", {}, -1);
        visit("temp,temperature", temperature, "sampling temperature; 0: greedy", {}, 0);
        visit("top-k", top_k, "sample from the k most likely tokens; 0: all", {}, 0);
        visit(
            "top-p", top_p, "sample from the most likely tokens of this total probability", {}, 0, 1
        );
        visit("seed,s", seed, "sampling seed; the same seed gives the same text");
    }
};

class Generator {
public:
    static constexpr int64_t kMostContext = 8192;

    // threads: 0: all cores. adapter: a LoRA file for the model; empty: none. most: tokens of context, at most
    // the model's. Throws an Error with llama.cpp's reason if it cannot load a file.
    explicit Generator(
        const std::string & path,
        int                 threads = 0,
        const std::string & adapter = "",
        int64_t             most    = kMostContext
    );
    ~Generator();
    Generator(const Generator &)             = delete;
    Generator & operator=(const Generator &) = delete;

    // Continues a prompt until the text ends, n_tokens are sampled, or `piece` returns false. piece
    // gets the text of each token, which may be part of a UTF-8 character. Returns the continuation.
    // When the context is full, its older half is dropped.
    std::string
    run(const std::string &                              prompt,
        const GenerateOptions &                          options,
        const std::function<bool(const std::string &)> & piece = {});

    // Logits after each token of a text: n_tokens rows of the vocabulary's size.
    // REQUIRES: at most context() tokens.
    std::vector<float> logits(std::span<const int32_t> tokens);

    // The loss of each token after the first: -log of its probability after those before it.
    // REQUIRES: from 2 to context() + 1 tokens.
    std::vector<double> losses(std::span<const int32_t> tokens);

    int64_t context() const;

private:
    void                   decode_all(std::span<const int32_t> tokens);  // logits after every token
    std::span<const float> row(size_t i) const;                          // of the logits
    void                   decode(std::span<const int32_t> tokens);

    void add_adapter(const std::string & path);

    std::unique_ptr<llama_model, void (*)(llama_model *)>     model_;
    std::unique_ptr<llama_context, void (*)(llama_context *)> context_;
};

// Samples from weights in a trainer's memory (of a model, or of an adapter whose base is at hand), through a
// temporary file in `folder`.
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
