#include "ggml-train/shard/weights.h"

namespace gt {

// Pads the vocabulary with zero rows to a multiple of the kernels' width.
static int64_t padded(int64_t V) {
    const int64_t unit = V >= 1024 ? 64 : 16;
    return (V + unit - 1) / unit * unit;
}

Weights::Weights(const Backend & backend, std::span<const TensorSpec> specs, bool with_grads)
    : device_(backend.device()) {
    weight_ctx_ = make_context(specs.size());
    grad_ctx_   = make_context(specs.size());
    for (const TensorSpec & spec : specs) {
        Param param{.name = spec.name, .ne = spec.ne, .kind = spec.kind, .rate = spec.rate};
        auto  ne = spec.ne;
        if (spec.per_token) {
            ne[1] = padded(ne[1]);
        }
        param.weight = ggml_new_tensor(weight_ctx_.get(), GGML_TYPE_F32, 4, ne.data());
        ggml_set_name(param.weight, spec.name.c_str());
        if (with_grads) {
            param.grad = ggml_new_tensor(grad_ctx_.get(), GGML_TYPE_F32, 4, ne.data());
            ggml_format_name(param.grad, "grad %s", spec.name.c_str());
        }
        params_.push_back(param);
    }
    weight_buffer_ = backend.allocate(weight_ctx_.get(), "weights");
    if (with_grads) {
        grad_buffer_ = backend.allocate(grad_ctx_.get(), "gradients");
    }
}

const Param * Weights::find(const std::string & name) const {
    for (const Param & param : params_) {
        if (param.name == name) {
            return &param;
        }
    }
    return nullptr;
}

const Param & Weights::at(const std::string & name) const {
    if (const Param * param = find(name)) {
        return *param;
    }
    check_failed(name.c_str(), "no such tensor in the model", __FILE__, __LINE__);
}

ggml_tensor * Weights::add_constant(const Backend & backend, std::span<const float> values) {
    ggml_context_ptr ctx = make_context(1);
    ggml_tensor *    tensor =
        ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, static_cast<int64_t>(values.size()));
    auto buffer = backend.allocate(ctx.get(), "constants");
    constants_.emplace_back(std::move(ctx), std::move(buffer));
    ggml_backend_tensor_set(tensor, values.data(), 0, values.size_bytes());
    return tensor;
}

int64_t n_elements(const Param & param) {
    return param.ne[0] * param.ne[1] * param.ne[2] * param.ne[3];
}

void Weights::set(const Param & param, std::span<const float> values) {
    GT_CHECK(static_cast<int64_t>(values.size()) == n_elements(param), param.name.c_str());
    ggml_backend_tensor_set(param.weight, values.data(), 0, values.size_bytes());
}

void Weights::get(const Param & param, std::span<float> values) const {
    GT_CHECK(static_cast<int64_t>(values.size()) == n_elements(param), param.name.c_str());
    ggml_backend_tensor_get(param.weight, values.data(), 0, values.size_bytes());
}

void Weights::get_grad(const Param & param, std::span<float> values) const {
    GT_CHECK(static_cast<int64_t>(values.size()) == n_elements(param), param.name.c_str());
    ggml_backend_tensor_get(param.grad, values.data(), 0, values.size_bytes());
}

std::vector<ParamView> Weights::views() {
    std::vector<ParamView> views;
    for (const Param & param : params_) {
        const size_t n    = n_elements(param);
        const int    last = ggml_n_dims(param.weight) - 1;
        views.push_back(
            {.name      = param.name,
             .ne        = param.ne,
             .kind      = param.kind,
             .row_begin = 0,
             .row_end   = param.ne[last],
             .weight    = {static_cast<float *>(param.weight->data), n},
             .grad      = {static_cast<float *>(param.grad->data), n},
             .device    = device_,
             .rate      = param.rate}
        );
    }
    return views;
}

static std::span<float> flat(const std::vector<Param> & params, ggml_tensor * Param::*which) {
    const ggml_tensor * first = params.front().*which;
    const ggml_tensor * last  = params.back().*which;
    for (size_t i = 1; i < params.size(); ++i) {
        GT_CHECK(
            (params[i - 1].*which)->data < (params[i].*which)->data,
            "tensors lie in the order they were made in"
        );
    }
    float *      begin = static_cast<float *>(first->data);
    const auto * end   = static_cast<const float *>(last->data) + ggml_nelements(last);
    return {begin, static_cast<size_t>(end - begin)};
}

std::span<float> Weights::flat_weights() const {
    return flat(params_, &Param::weight);
}

std::span<float> Weights::flat_grads() const {
    return flat(params_, &Param::grad);
}

std::vector<ParamView> param_shapes(std::span<const TensorSpec> specs) {
    std::vector<ParamView> shapes;
    for (const TensorSpec & spec : specs) {
        int64_t rows = 1;
        for (const int64_t n : spec.ne) {
            rows = n > 1 ? n : rows;
        }
        ParamView shape{.name = spec.name, .ne = spec.ne, .kind = spec.kind, .row_end = rows};
        shape.rate = spec.rate;
        shapes.push_back(shape);
    }
    return shapes;
}

}  // namespace gt
