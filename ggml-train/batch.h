// ggml-train/batch.h — samples and labels: the input of a training step, or of one micro-batch.
#pragma once

#include "ggml-train/base/base.h"

#include <algorithm>

namespace gt {

struct Batch {
    int64_t              n_samples = 0;
    std::vector<int32_t> tokens;  // n_samples x T, or empty
    std::vector<float>   images;  // n_samples pictures, each [W, H, channels], or empty
    std::vector<int32_t> labels;  // n_samples x T (text) or n_samples (pictures); < 0: ignored

    // Packed text: the place of each token in its segment, n_samples x T. A token sees only its own segment,
    // and the segments of a sample are as if each were alone. Empty: a sample is one segment.
    std::vector<int32_t> positions;

    // Mixup: loss = mix * loss(labels) + (1 - mix) * loss(mix_labels). Empty: off.
    std::vector<int32_t> mix_labels;  // as many as labels, ignored where they are
    float                mix = 1.0f;
    // Stochastic depth: factor of each residual branch. Empty: off.
    std::vector<float> depth;  // n_samples x (2 per block)

    // Dropout of adapters: a key per sample, which decides what is dropped. Empty: off.
    std::vector<int32_t> dropout;

    // Samples [begin, end).
    Batch part(int64_t begin, int64_t end) const {
        const auto cut = [&]<class V>(const V & all) {
            const int64_t each = static_cast<int64_t>(all.size()) / n_samples;
            return V(all.begin() + begin * each, all.begin() + end * each);
        };
        return {end - begin,     cut(tokens), cut(images), cut(labels), cut(positions),
                cut(mix_labels), mix,         cut(depth),  cut(dropout)};
    }

    // Keys of dropout: a function of seed, step, host and place in the batch.
    void add_dropout_keys(uint64_t seed, uint64_t step, const std::string & host) {
        const uint64_t who = digest64(host);
        for (int64_t i = 0; i < n_samples; ++i) {
            const uint64_t bits = random_bits(seed, step, who, static_cast<uint64_t>(i));
            dropout.push_back(static_cast<int32_t>(bits >> 32));
        }
    }

    // Labels that count.
    int64_t n_labels() const {
        return std::count_if(labels.begin(), labels.end(), [](int32_t label) {
            return label >= 0;
        });
    }

    // The same samples with all labels ignored: loss and gradient are zero. A rank runs it to keep in
    // step with the others when there is no micro-batch left for it.
    Batch blank() const {
        Batch batch = *this;
        std::fill(batch.labels.begin(), batch.labels.end(), -1);
        std::fill(batch.mix_labels.begin(), batch.mix_labels.end(), -1);
        return batch;
    }
};

}  // namespace gt
