#include "optim/rank-optimizer.h"

#include "ggml-train/shard/ranks.h"

#include <algorithm>
#include <cmath>

namespace gt {

RankOptimizer::RankOptimizer(OptimizerParts parts) : parts_(std::move(parts)) {
    if (parts_.ranks) {
        const std::vector<int> whole = from_all<int>(*parts_.ranks, parts_.units->owns_all());
        is_cut_ = std::any_of(whole.begin(), whole.end(), [](int w) { return w == 0; });
    }
}

// Gradients are multiplied with this so that their norm is at most max_norm.
static float clip_scale(double norm, float max_norm) {
    return max_norm > 0.0f && norm > max_norm ? static_cast<float>(max_norm / (norm + 1e-6)) : 1.0f;
}

Prepared RankOptimizer::prepare(uint64_t step, float lr, const Clip & clip) {
    const double length = norm() / clip.loss_scale;
    if (!std::isfinite(length)) {
        return {.message = {}, .grad_norm = length};
    }
    Bytes part = pack(step, lr, clip_scale(length, clip.max_norm) / clip.loss_scale);
    return {.message = join(std::move(part)), .grad_norm = length};
}

double RankOptimizer::norm() {
    return grad_norm(*parts_.units, is_cut_ ? parts_.ranks : nullptr);
}

// The host's message, on rank 0, from the parts of all ranks.
Bytes RankOptimizer::join(Bytes part) {
    if (!is_cut_) {
        return part;
    }
    const std::vector<Bytes *> parts = from_all(*parts_.ranks, &part);
    on_first(*parts_.ranks, [&] {
        if (part.empty()) {
            return;  // no round is due
        }
        std::vector<Bytes> all;
        for (Bytes * one : parts) {
            all.push_back(std::move(*one));
        }
        part = join_parts(all);
    });
    return part;
}

}  // namespace gt
