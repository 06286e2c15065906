// tests/bench/gpt2-shapes.h — the tensors of GPT-2 124M, and a model with random gradients.
#pragma once

#include "ggml-train/optimizer.h"

#include <thread>

namespace gt {

struct BenchShape {
    std::string name;
    int64_t     rows, cols;  // cols 0: a vector
    ParamKind   kind = ParamKind::matrix;
};

inline std::vector<BenchShape> gpt2_shapes() {
    std::vector<BenchShape> shapes = {
        {"token_embd", 50257, 768, ParamKind::embedding},
        {"position_embd", 1024, 768, ParamKind::embedding}};
    const auto vector = [&](const std::string & name, int64_t n) {
        shapes.push_back({name, n, 0, ParamKind::vector});
    };
    for (int i = 0; i < 12; ++i) {
        const std::string block = "blk." + std::to_string(i) + ".";
        vector(block + "attn_norm.weight", 768);
        vector(block + "attn_norm.bias", 768);
        shapes.push_back({block + "attn_qkv.weight", 2304, 768});
        vector(block + "attn_qkv.bias", 2304);
        shapes.push_back({block + "attn_output.weight", 768, 768});
        vector(block + "attn_output.bias", 768);
        vector(block + "ffn_norm.weight", 768);
        vector(block + "ffn_norm.bias", 768);
        shapes.push_back({block + "ffn_up.weight", 3072, 768});
        vector(block + "ffn_up.bias", 3072);
        shapes.push_back({block + "ffn_down.weight", 768, 3072});
        vector(block + "ffn_down.bias", 768);
    }
    vector("output_norm.weight", 768);
    vector("output_norm.bias", 768);
    return shapes;
}

// Weights and gradients.
class BenchModel {
public:
    explicit BenchModel(std::vector<BenchShape> shapes) : shapes_(std::move(shapes)) {
        for (const BenchShape & shape : shapes_) {
            const size_t n = shape.rows * std::max<int64_t>(shape.cols, 1);
            weight_.emplace_back(n, 0.02f);
            grad_.emplace_back(n, 0.0f);
        }
        new_gradients(0);
    }

    // Noise, with every seventh row three times as large.
    void new_gradients(uint64_t seed) {
        for (size_t t = 0; t < grad_.size(); ++t) {
            const size_t cols = std::max<int64_t>(shapes_[t].cols, 1);
            uint64_t     x    = random_bits(seed, t) | 1;
            for (size_t i = 0; i < grad_[t].size(); ++i) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                const float noise = random_uniform(x) + random_uniform(x << 20) - 1.0f;
                grad_[t][i]       = noise * 1e-3f * (1.0f + (i / cols % 7 == 0 ? 2.0f : 0.0f));
            }
        }
    }

    std::vector<ParamView> params() {
        std::vector<ParamView> params;
        for (size_t t = 0; t < shapes_.size(); ++t) {
            ParamView param{.name = shapes_[t].name, .kind = shapes_[t].kind};
            if (shapes_[t].cols == 0) {
                param.ne[0] = shapes_[t].rows;
            } else {
                param.ne[0] = shapes_[t].cols;
                param.ne[1] = shapes_[t].rows;
            }
            param.row_end = shapes_[t].rows;
            param.weight  = weight_[t];
            param.grad    = grad_[t];
            params.push_back(param);
        }
        return params;
    }

private:
    std::vector<BenchShape>         shapes_;
    std::vector<std::vector<float>> weight_, grad_;
};

}  // namespace gt
