#include "ggml-train/graph/graph-inputs.h"

#include <algorithm>
#include <numeric>

namespace gt {

StepInputs::StepInputs(const Backend & backend, const GraphOptions & options, int n_blocks)
    : options_(options), ctx_(make_context(24)) {
    const bool     images   = options.image_size > 0;
    const int64_t  n_labels = images ? options.B : options.B * options.T;
    ggml_context * ctx      = ctx_.get();
    inputs_.B               = options.B;
    inputs_.T               = options.T;
    if (images) {
        const int64_t width = options.image_width > 0 ? options.image_width : options.image_size;
        inputs_.images      = ggml_new_tensor_4d(
                 ctx, GGML_TYPE_F32, width, options.image_size, options.channels, options.B
             );
    } else {
        inputs_.tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_labels);
    }
    if (options.packed) {
        inputs_.positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_labels);
    }
    if (options.dropout > 0.0f) {
        inputs_.dropout = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, options.B);
    }
    if (options.depth) {
        inputs_.depth = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 2 * n_blocks, options.B);
    }
    loss_.labels    = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_labels);
    loss_.targets   = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, n_labels);
    loss_.mask      = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 1, n_labels);
    loss_.scale     = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    loss_.rows      = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n_labels);
    loss_.smoothing = options.smoothing;
    if (options.mixup) {
        loss_.mix_labels  = ggml_dup_tensor(ctx, loss_.labels);
        loss_.mix_targets = ggml_dup_tensor(ctx, loss_.targets);
        loss_.mix_scale   = ggml_dup_tensor(ctx, loss_.scale);
        loss_.mix_rows    = ggml_dup_tensor(ctx, loss_.rows);
    }
    beta_           = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    one_            = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    buffer_         = backend.allocate(ctx, "inputs");
    const float one = 1.0f;
    ggml_backend_tensor_set(one_, &one, 0, sizeof(one));
}

static void set_tensor(ggml_tensor * t, const auto & values) {
    GT_CHECK(
        values.size() * sizeof(values[0]) == ggml_nbytes(t),
        "the batch must have the shape of the graph"
    );
    ggml_backend_tensor_set(t, values.data(), 0, ggml_nbytes(t));
}

// Labels as valid indices: 0 where they are ignored.
static std::vector<int32_t> targets(std::vector<int32_t> labels) {
    for (int32_t & label : labels) {
        label = std::max(label, 0);
    }
    return labels;
}

void StepInputs::set(const Batch & batch, float scale, bool add) {
    GT_CHECK(batch.n_samples == options_.B, "the graph was built for another batch size");
    if (inputs_.images) {
        set_tensor(inputs_.images, batch.images);
    } else {
        set_tensor(inputs_.tokens, batch.tokens);
    }
    if (inputs_.positions) {
        set_tensor(inputs_.positions, batch.positions);
    }
    if (inputs_.dropout) {
        set_tensor(inputs_.dropout, batch.dropout);
    }
    if (options_.goal == GraphOptions::Goal::logits) {
        return;
    }
    std::vector<float> mask;
    for (int32_t label : batch.labels) {
        mask.push_back(label < 0 ? 0.0f : 1.0f);
    }
    set_tensor(loss_.labels, batch.labels);
    set_tensor(loss_.targets, targets(batch.labels));
    set_tensor(loss_.mask, mask);
    set_tensor(loss_.scale, std::array{options_.mixup ? scale * batch.mix : scale});
    if (options_.mixup) {
        set_tensor(loss_.mix_labels, batch.mix_labels);
        set_tensor(loss_.mix_targets, targets(batch.mix_labels));
        set_tensor(loss_.mix_scale, std::array{scale * (1.0f - batch.mix)});
    }
    set_tensor(beta_, std::array{add ? 1.0f : 0.0f});
}

void StepInputs::set_depth(std::span<const float> factors) {
    if (inputs_.depth) {
        set_tensor(inputs_.depth, factors);
    }
}

double StepInputs::loss(const Batch & batch) const {
    const auto sum = [&](ggml_tensor * losses) {
        std::vector<float> rows(ggml_nelements(losses));
        ggml_backend_tensor_get(losses, rows.data(), 0, rows.size() * sizeof(float));
        return std::accumulate(rows.begin(), rows.end(), 0.0);
    };
    const double mix = batch.mix;
    return options_.mixup ? mix * sum(loss_.rows) + (1.0 - mix) * sum(loss_.mix_rows)
                          : sum(loss_.rows);
}

}  // namespace gt
