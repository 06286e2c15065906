// ggml-train/shard/weights.h — the parameters of one model on one device: weights and gradients.
#pragma once

#include "ggml-train/device/backend.h"
#include "ggml-train/gguf/model-head.h"
#include "ggml-train/model.h"

namespace gt {

class Weights {
public:
    // with_grads: false if the model is only evaluated. All weights start at zero.
    Weights(const Backend & backend, std::span<const TensorSpec> specs, bool with_grads);

    std::vector<Param> & params() { return params_; }

    // REQUIRES: the model has a tensor of this name.
    const Param & at(const std::string & name) const;
    const Param * find(const std::string & name) const;  // null: there is none

    // Memory for values that a graph reads and nothing changes.
    ggml_tensor * add_constant(const Backend & backend, std::span<const float> values);

    // Copy from or to the host; sizes are without padding.
    void set(const Param & param, std::span<const float> values);
    void get(const Param & param, std::span<float> values) const;
    void get_grad(const Param & param, std::span<float> values) const;

    // Views for an optimizer, in the memory of the backend's device. REQUIRES: with_grads.
    std::vector<ParamView> views();

    // All weights, or gradients, in the device's memory: tensor after tensor, with gaps between.
    // REQUIRES: host memory or our kernels. Other devices may hold them in several buffers.
    std::span<float> flat_weights() const;
    std::span<float> flat_grads() const;

private:
    Device *                device_ = nullptr;
    std::vector<Param>      params_;
    ggml_context_ptr        weight_ctx_, grad_ctx_;
    ggml_backend_buffer_ptr weight_buffer_, grad_buffer_;

    std::vector<std::pair<ggml_context_ptr, ggml_backend_buffer_ptr>> constants_;
};

int64_t n_elements(const Param & param);

// The tensors as an optimizer sees them, with all rows, without memory.
std::vector<ParamView> param_shapes(std::span<const TensorSpec> specs);

}  // namespace gt
