// ggml-train/batch.h — what one micro-batch feeds into a graph.
#pragma once

#include "ggml-train/base.h"

namespace gt {

struct Batch {
    int64_t              n_samples = 0;
    std::vector<int32_t> tokens;  // n_samples x T, or empty
    std::vector<float>   images;  // n_samples pictures, each [W, H, channels], or empty
    std::vector<int32_t> labels;  // n_samples x T (text) or n_samples (pictures); < 0: ignored

    // Mixup: loss = mix * loss(labels) + (1 - mix) * loss(mix_labels). Empty: off.
    std::vector<int32_t> mix_labels;  // as many as labels, ignored where they are
    float                mix = 1.0f;
    // Stochastic depth: what each residual branch is multiplied with. Empty: off.
    std::vector<float> depth;  // n_samples x (2 per block)

    // Samples [begin, end) alone.
    Batch part(int64_t begin, int64_t end) const {
        const auto cut = [&]<class V>(const V & all) {
            const int64_t each = static_cast<int64_t>(all.size()) / n_samples;
            return V(all.begin() + begin * each, all.begin() + end * each);
        };
        return {end - begin,     cut(tokens), cut(images), cut(labels),
                cut(mix_labels), mix,         cut(depth)};
    }
};

}  // namespace gt
