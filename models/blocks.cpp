#include "models/blocks.h"

#include "models/base-weights.h"

namespace gt {

Transformer::Transformer(const Backend & backend, const ModelConfig & config, bool with_grads)
    : config_(config), weights_(backend, tensor_specs(config), with_grads) {
    if (config.lora.base && !backend.is_host()) {
        base_ = std::make_unique<DeviceBase>(backend, *config.lora.base);
    }
}

Transformer::~Transformer() = default;

const Param * Transformer::find(const std::string & name) const {
    if (base_) {
        return base_->find(name);
    }
    return config_.lora.base ? config_.lora.base->find(name) : weights_.find(name);
}

const Param & Transformer::at(const std::string & name) const {
    const Param * param = find(name);
    GT_CHECK(param, name.c_str());
    return *param;
}

ggml_tensor * Transformer::linear(
    Ops &                               ops,
    ggml_tensor *                       x,
    const std::string &                 at,
    std::initializer_list<const char *> names,
    ggml_tensor *                       residual
) const {
    std::vector<ggml_tensor *> matrices, biases, A, B;
    for (const char * name : names) {
        const std::string matrix = at + name + ".weight";
        matrices.push_back(w(matrix));
        if (const Param * bias = find(at + name + ".bias")) {
            biases.push_back(bias->weight);
        }
        if (const Param * a = weights_.find(matrix + ".lora_a")) {
            A.push_back(a->weight);
            B.push_back(weights_.at(matrix + ".lora_b").weight);
        }
    }
    const auto some = [&](const auto & list) {
        return !list.empty() && list.size() < matrices.size();
    };
    if (some(A) || some(biases)) {  // one by one
        ggml_tensor * y = nullptr;
        for (const char * name : names) {
            ggml_tensor * part = linear(ops, x, at, {name});
            y                  = y ? ggml_concat(ops.ctx(), y, part, 0) : part;
        }
        return residual ? ggml_add(ops.ctx(), y, residual) : y;
    }
    ggml_tensor * y = ops.linear(x, matrices, biases, residual);  // [M_0 + M_1 + ..., N]
    if (A.empty()) {
        return y;
    }
    ggml_tensor * h = ops.linear(ops.dropout(x), A);  // [n rank, N]
    h               = ggml_scale(ops.ctx(), h, config_.lora.scale());
    return ops.linear_blocks(h, B, y);
}

}  // namespace gt
