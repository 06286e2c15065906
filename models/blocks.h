// models/blocks.h — base class of the graphs: weights by name, norms, attention shape.
#pragma once

#include "ggml-train/graph/ops.h"
#include "ggml-train/shard/weights.h"
#include "models/arch.h"

namespace gt {

class DeviceBase;

// A model's graphs and weights; see ggml-train/model.h for the stages.
class Transformer : public Model {
public:
    Transformer(const Backend & backend, const ModelConfig & config, bool with_grads);
    ~Transformer() override;

    std::vector<Param> & params() override { return weights_.params(); }
    int                  n_blocks() const override { return static_cast<int>(config_.n_layer); }

    const ModelConfig & config() const { return config_; }
    Weights &           weights() { return weights_; }

protected:
    // A tensor of the model, trained or of an adapter's base.
    const Param * find(const std::string & name) const;
    const Param & at(const std::string & name) const;
    ggml_tensor * w(const std::string & name) const { return at(name).weight; }

    ggml_tensor * layer_norm(Ops & ops, ggml_tensor * x, const std::string & name) const {
        return ops.layer_norm(x, w(name + ".weight"), w(name + ".bias"), config_.norm_eps);
    }
    ggml_tensor * rms_norm(Ops & ops, ggml_tensor * x, const std::string & name) const {
        return ops.rms_norm(x, w(name + ".weight"), config_.norm_eps);
    }
    // x through matrices side by side (at + name + ".weight"), with their biases and adapters if they have
    // some.
    ggml_tensor * linear(
        Ops &                               ops,
        ggml_tensor *                       x,
        const std::string &                 at,
        std::initializer_list<const char *> names,
        ggml_tensor *                       residual = nullptr
    ) const;

    AttentionShape
    attention_shape(int64_t T, bool causal, ggml_tensor * positions = nullptr) const {
        return {
            .T         = T,
            .H         = config_.n_head,
            .Hkv       = config_.n_head_kv,
            .D         = config_.head_dim(),
            .causal    = causal,
            .positions = positions};
    }

    // The output matrix of a text model.
    const Param & token_output() const {
        return at(config_.tied ? "token_embd.weight" : "output.weight");
    }

    ModelConfig                 config_;
    Weights                     weights_;
    std::unique_ptr<DeviceBase> base_;  // of an adapter on a device; else null
};

// Arch::make of a subclass.
template <class Subclass>
std::unique_ptr<Transformer>
make_transformer(const Backend & backend, const ModelConfig & config, bool with_grads) {
    return std::make_unique<Subclass>(backend, config, with_grads);
}

}  // namespace gt
