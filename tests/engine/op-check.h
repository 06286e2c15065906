// tests/engine/op-check.h — runs one op or layer forward and backward, and compares its gradients with
// central differences.
#pragma once

#include "ggml-train/graph/autograd.h"
#include "ggml-train/graph/compute.h"

#include <algorithm>
#include <cmath>

namespace gt {

class OpCheck {
public:
    using Build = std::function<ggml_tensor *(Ops & ops, const std::vector<ggml_tensor *> & args)>;

    // args: F32 parameters of these shapes with random values. ids: I32 inputs, appended to them.
    OpCheck(
        const std::string &                 device,
        int                                 n_threads,
        Form                                form,
        std::vector<std::array<int64_t, 4>> shapes,
        std::vector<std::vector<int32_t>>   ids,
        const Build &                       build,
        Recompute                           recompute = Recompute::cheap
    )
        : backend_(device, n_threads), ctx_(make_context(64)),
          graph_ctx_(make_context(4096, 2048)) {
        for (auto ne : shapes) {
            std::replace(ne.begin(), ne.end(), int64_t{0}, int64_t{1});  // trailing sizes not given
            Param param{.ne = ne};
            param.weight = ggml_new_tensor(ctx_.get(), GGML_TYPE_F32, 4, ne.data());
            param.grad   = ggml_new_tensor(ctx_.get(), GGML_TYPE_F32, 4, ne.data());
            params_.push_back(param);
        }
        std::vector<ggml_tensor *> args, id_tensors;
        for (const Param & param : params_) {
            args.push_back(param.weight);
        }
        for (const auto & list : ids) {
            id_tensors.push_back(ggml_new_tensor_1d(ctx_.get(), GGML_TYPE_I32, list.size()));
            args.push_back(id_tensors.back());
        }
        beta_ = ggml_new_tensor_1d(ctx_.get(), GGML_TYPE_F32, 1);
        one_  = ggml_new_tensor_1d(ctx_.get(), GGML_TYPE_F32, 1);

        Ops ops(graph_ctx_.get(), form, GGML_TYPE_F32, &backend_);
        y_    = build(ops, args);
        seed_ = ggml_new_tensor(ctx_.get(), GGML_TYPE_F32, 4, y_->ne);
        ggml_set_output(y_);
        graph_ = ggml_new_graph_custom(graph_ctx_.get(), 2048, false);
        ggml_build_forward_expand(graph_, y_);
        Autograd autograd(ops, graph_, beta_, one_, recompute);
        for (const Param & param : params_) {
            autograd.add_param(param);
        }
        autograd.run(y_, [&] { return seed_; });

        buffer_ = backend_.allocate(ctx_.get(), "test");
        check_support(backend_, graph_);
        plan_ = backend_.plan({graph_});
        for (size_t i = 0; i < params_.size(); ++i) {
            values_.push_back(random(i, ggml_nelements(params_[i].weight)));
            put(params_[i].weight, values_[i]);
        }
        seeds_ = random(99, ggml_nelements(y_));
        put(seed_, seeds_);
        put(one_, {1.0f});
        for (size_t i = 0; i < ids.size(); ++i) {
            ggml_backend_tensor_set(id_tensors[i], ids[i].data(), 0, ggml_nbytes(id_tensors[i]));
        }
    }

    // Forward and backward; first: clears the gradients before.
    double run(bool first = true) {
        put(beta_, {first ? 0.0f : 1.0f});
        if (first) {
            for (const Param & param : params_) {
                ggml_backend_tensor_memset(param.grad, 0, 0, ggml_nbytes(param.grad));
            }
        }
        compute(backend_, graph_);
        const std::vector<float> y    = get(y_);
        double                   loss = 0.0;
        for (size_t i = 0; i < y.size(); ++i) {
            loss += static_cast<double>(y[i]) * seeds_[i];
        }
        return loss;
    }

    std::vector<float> output() { return get(y_); }
    std::vector<float> grad(size_t i) { return get(params_[i].grad); }

    // Largest difference to central differences, relative to the largest gradient of the tensor.
    double worst_error(float eps = 1e-2f) {
        run();
        std::vector<std::vector<float>> grads;
        for (size_t i = 0; i < params_.size(); ++i) {
            grads.push_back(grad(i));
        }
        double worst = 0.0;
        for (size_t i = 0; i < params_.size(); ++i) {
            float largest = 1e-3f;
            for (float g : grads[i]) {
                largest = std::max(largest, std::fabs(g));
            }
            const size_t n      = values_[i].size();
            const size_t stride = std::max<size_t>(1, n / 23);
            for (size_t k = i % stride; k < n; k += stride) {
                const float value   = values_[i][k];
                const auto  loss_at = [&](float x) {
                    ggml_backend_tensor_set(
                         params_[i].weight, &x, k * sizeof(float), sizeof(float)
                     );
                    return run();
                };
                const double slope = (loss_at(value + eps) - loss_at(value - eps)) / (2.0 * eps);
                loss_at(value);
                worst = std::max(worst, std::fabs(slope - grads[i][k]) / largest);
            }
        }
        return worst;
    }

    ggml_cgraph * graph() const { return graph_; }

private:
    static std::vector<float> random(uint64_t seed, size_t n) {
        std::vector<float> values(n);
        for (size_t i = 0; i < n; ++i) {
            values[i] = 2.0f * random_uniform(random_bits(seed, i)) - 1.0f;
        }
        return values;
    }
    static void put(ggml_tensor * t, const std::vector<float> & v) {
        ggml_backend_tensor_set(t, v.data(), 0, ggml_nbytes(t));
    }
    static std::vector<float> get(ggml_tensor * t) {
        std::vector<float> v(ggml_nelements(t));
        ggml_backend_tensor_get(t, v.data(), 0, ggml_nbytes(t));
        return v;
    }

    Backend                         backend_;
    ggml_context_ptr                ctx_, graph_ctx_;
    std::vector<Param>              params_;
    std::vector<std::vector<float>> values_;
    std::vector<float>              seeds_;
    ggml_tensor *           y_ = nullptr, *seed_ = nullptr, *beta_ = nullptr, *one_ = nullptr;
    ggml_cgraph *           graph_ = nullptr;
    ggml_backend_buffer_ptr buffer_;
    ggml_gallocr_ptr        plan_;
};

}  // namespace gt
