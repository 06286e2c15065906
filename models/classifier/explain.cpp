#include "models/classifier/explain.h"

#include "ggml-train/graph/compute.h"
#include "ggml-train/graph/graph-inputs.h"
#include "models/vision/resize.h"

#include <algorithm>
#include <cmath>
#include <ggml-alloc.h>

namespace gt {

namespace {

// Queries and keys of the last block: [2C, T].
std::vector<float>
last_queries_and_keys(const Backend & backend, Transformer & model, std::span<const float> pixels) {
    const ModelConfig & c = model.config();
    const GraphOptions  options{
         .B           = 1,
         .T           = c.n_positions(),
         .image_size  = c.image_size,
         .image_width = c.image_width,
         .channels    = c.channels,
         .goal        = GraphOptions::Goal::logits};
    StepInputs             inputs(backend, options, model.n_blocks());
    const size_t           n_nodes = 1024 + 256 * static_cast<size_t>(c.n_layer);
    const ggml_context_ptr ctx     = make_context(2 * n_nodes, n_nodes);
    ggml_cgraph *          graph   = ggml_new_graph_custom(ctx.get(), n_nodes, false);
    Ops                    ops(ctx.get(), options.form, options.compute, &backend);

    ggml_tensor * x = model.embed(ops, inputs.model());
    for (int i = 0; i + 1 < model.n_blocks(); ++i) {
        x = model.block(ops, inputs.model(), i, x);
    }
    const auto w = [&](const char * name) {
        const auto last = static_cast<long long>(c.n_layer - 1);
        return model.weights().at(format("v.blk.%lld.%s", last, name)).weight;
    };
    x = ops.layer_norm(x, w("ln1.weight"), w("ln1.bias"), c.norm_eps);
    x = ops.linear(
        x, {w("attn_q.weight"), w("attn_k.weight")}, {w("attn_q.bias"), w("attn_k.bias")}
    );
    ggml_set_output(x);
    ggml_build_forward_expand(graph, x);
    const ggml_gallocr_ptr plan = backend.plan({graph});
    inputs.set({.n_samples = 1, .images = {pixels.begin(), pixels.end()}}, 1.0f, false);
    compute(backend, graph);
    std::vector<float> values(static_cast<size_t>(ggml_nelements(x)));
    ggml_backend_tensor_get(x, values.data(), 0, values.size() * sizeof(float));
    return values;
}

}  // namespace

std::vector<float>
last_attention(const Backend & backend, Transformer & model, std::span<const float> pixels) {
    const ModelConfig &      c  = model.config();
    const std::vector<float> qk = last_queries_and_keys(backend, model, pixels);
    const int64_t C = c.n_embd, T = c.n_positions(), D = c.head_dim(), first = T - c.n_patches();
    const int64_t n_queries = c.pooling == "cls" ? 1 : T;  // the class token is the first
    const float   scale     = 1.0f / std::sqrt(static_cast<float>(D));

    std::vector<float>  sums(static_cast<size_t>(c.n_patches()));
    std::vector<double> row(static_cast<size_t>(T));
    for (int64_t i = c.pooling == "cls" ? 0 : first; i < n_queries; ++i) {
        for (int64_t h = 0; h < c.n_head; ++h) {
            const float * q = &qk[static_cast<size_t>(i * 2 * C + h * D)];
            for (int64_t t = 0; t < T; ++t) {
                const float * k   = &qk[static_cast<size_t>(t * 2 * C + C + h * D)];
                float         dot = 0.0f;
                for (int64_t d = 0; d < D; ++d) {
                    dot += q[d] * k[d];
                }
                row[static_cast<size_t>(t)] = dot * scale;
            }
            const double top = *std::max_element(row.begin(), row.end());
            double       sum = 0.0;
            for (double & value : row) {
                value = std::exp(value - top);
                sum += value;
            }
            for (int64_t p = 0; p < c.n_patches(); ++p) {
                sums[static_cast<size_t>(p)] +=
                    static_cast<float>(row[static_cast<size_t>(first + p)] / sum);
            }
        }
    }
    double total = 0.0;
    for (const float value : sums) {
        total += value;
    }
    for (float & value : sums) {
        value = static_cast<float>(value / total);
    }
    return sums;
}

Picture attention_picture(
    const ImageSpec &      spec,
    std::span<const float> pixels,
    std::span<const float> attention,
    int                    patch
) {
    const int W = spec.columns(), H = spec.size, cols = W / patch, rows = H / patch;
    const int grow = std::max(1, 512 / std::max(W, H));

    // the grid of patches as a small picture, smoothed while it is enlarged
    const auto [low, high]     = std::minmax_element(attention.begin(), attention.end());
    const float          range = std::max(*high - *low, 1e-12f);
    std::vector<uint8_t> grid;
    for (const float value : attention) {
        grid.push_back(uint8_t(std::lround(255.0f * (value - *low) / range)));
    }
    Picture heat;
    resize_picture(
        {cols, rows, 1, grid.data()}, {0, 0, float(cols), float(rows)}, W * grow, H * grow, heat
    );
    Picture out{W * grow, H * grow, 3, {}};
    for (int y = 0; y < out.height; ++y) {
        for (int x = 0; x < out.width; ++x) {
            const float hot     = float(heat.pixels[size_t(y) * out.width + x]) / 255.0f;
            const float warm[3] = {255.0f, 110.0f, 0.0f};
            for (int c = 0; c < 3; ++c) {
                const int    from  = spec.channels == 3 ? c : 0;
                const size_t at    = (size_t(from) * H + size_t(y / grow)) * W + size_t(x / grow);
                const float  value = 255.0f * (pixels[at] * spec.deviation[from] + spec.mean[from]);
                const float  mixed = (0.55f - 0.22f * hot) * value + 0.65f * hot * warm[c];
                out.pixels.push_back(uint8_t(std::lround(std::clamp(mixed, 0.0f, 255.0f))));
            }
        }
    }
    return out;
}

}  // namespace gt
