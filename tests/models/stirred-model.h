// tests/models/stirred-model.h — small models without trivial weights, and their logits.
#pragma once

#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "models/init.h"
#include "models/presets.h"
#include "models/text/tokenizer.h"
#include "tests/catch.h"

#include <cmath>

namespace gt {

// Moves every weight away from its initial value: zero biases and unit norms would hide errors.
inline ModelFile stirred_model(
    const std::string & arch,
    const ModelSizes &  sizes,
    void (*change)(ModelConfig & config) = nullptr
) {
    ModelSizes all     = sizes;
    all.arch           = arch;
    ModelConfig config = sized_config("", all);
    config.n_vocab     = 257;
    if (change) {
        change(config);
    }
    ModelFile model = empty_model(config);
    model.keys      = byte_vocabulary();
    init_model(model, 1);
    for (size_t i = 0; i < model.tensors.size(); ++i) {
        std::vector<float> & data = model.tensors[i].data;
        for (size_t j = 0; j < data.size(); ++j) {
            const uint64_t bits = random_bits(7, i, j, 0);
            data[j] += 0.2f * (static_cast<float>(bits >> 40) / static_cast<float>(1 << 24) - 0.5f);
        }
    }
    return model;
}

inline std::vector<float> our_logits(const ModelFile & file, const Batch & batch, int64_t T) {
    const Backend backend("cpu", 1);
    const auto    model = make_model(backend, file.config, false);
    for (const ModelTensor & tensor : file.tensors) {
        model->weights().set(model->weights().at(tensor.spec.name), tensor.data);
    }
    StepGraph graph(
        backend, *model, {.B = batch.n_samples, .T = T, .goal = GraphOptions::Goal::logits}
    );
    graph.run(batch);
    return graph.logits();
}

// Largest difference, relative to the largest logit.
inline float difference(const std::vector<float> & ours, const std::vector<float> & theirs) {
    REQUIRE(ours.size() == theirs.size());
    float worst = 0.0f, largest = 0.0f;
    for (size_t i = 0; i < ours.size(); ++i) {
        worst   = std::max(worst, std::fabs(ours[i] - theirs[i]));
        largest = std::max(largest, std::fabs(theirs[i]));
    }
    return worst / largest;
}

// One sample of T tokens.
inline Batch some_tokens(int64_t T) {
    Batch batch{.n_samples = 1};
    for (int64_t t = 0; t < T; ++t) {
        batch.tokens.push_back(static_cast<int32_t>(random_bits(3, t, 0, 0) % 257));
        batch.labels.push_back(static_cast<int32_t>(random_bits(3, t + 1, 0, 0) % 257));
    }
    return batch;
}

}  // namespace gt
