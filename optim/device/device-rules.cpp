// The host computes a step's scalars in the order of sgd.cpp, adamw.cpp and muon.cpp and launches kernels.
#include "optim/device/device-rules.h"

#include "ggml-train/cuda/table.h"

#include <algorithm>

namespace gt {

std::vector<std::span<float>>
make_device_state(Device & device, std::span<const size_t> sizes, const char * what) {
    constexpr size_t kAlign = 64;  // floats
    size_t           total  = 0;
    const auto       room   = [](size_t n) { return (n + kAlign - 1) / kAlign * kAlign; };
    for (const size_t n : sizes) {
        total += room(n);
    }
    auto * at = static_cast<float *>(device.alloc(total * sizeof(float), what));
    std::vector<std::span<float>> state;
    for (const size_t n : sizes) {
        state.push_back({at, n});
        at += room(n);
    }
    return state;
}

namespace {

class Sgd : public UpdateRule {
public:
    Sgd(std::vector<RuleTensor> tensors, Device & device)
        : tensors_(std::move(tensors)), device_(device) {}

    void begin(float lr) override { lr_ = lr; }

    void update(int tensor, int64_t offset, int64_t n, const float * u, float scale) override {
        const RuleTensor & t    = tensors_[tensor];
        const float        rate = lr_ * t.lr;
        device_.kernels().sgd(
            nullptr, n, 1.0f - rate * t.decay, rate * scale, u, t.weight.data() + offset
        );
    }

    void add_state(OptimizerState &, bool) override {}

private:
    std::vector<RuleTensor> tensors_;
    Device &                device_;
    float                   lr_ = 0.0f;
};

class AdamW : public UpdateRule {
public:
    AdamW(std::vector<RuleTensor> tensors, const AdamOptions & options, Device & device)
        : tensors_(std::move(tensors)), options_(options), device_(device) {
        std::vector<size_t> sizes;
        for (const RuleTensor & tensor : tensors_) {
            sizes.push_back(tensor.weight.size());
        }
        first_  = make_device_state(device_, sizes, "AdamW's first moments");
        second_ = make_device_state(device_, sizes, "AdamW's second moments");
    }

    void begin(float lr) override {
        lr_   = lr;
        step_ = adam_step(options_, ++t_, lr);
    }

    void update(int tensor, int64_t offset, int64_t n, const float * u, float scale) override {
        const RuleTensor &   t = tensors_[tensor];
        const cuda::AdamStep step{
            .keep = 1.0f - lr_ * t.lr * t.decay,
            .rate = step_.rate * t.lr,
            .root = step_.root,
            .b1   = options_.beta1,
            .b2   = options_.beta2,
            .eps  = options_.eps};
        device_.kernels().adamw(
            nullptr, n, step, scale, u, t.weight.data() + offset, first_[tensor].data() + offset,
            second_[tensor].data() + offset
        );
    }

    void add_state(OptimizerState & state, bool shared) override {
        for (size_t i = 0; i < tensors_.size(); ++i) {
            state.tensors.push_back({"adamw.m." + tensors_[i].name, first_[i], shared, &device_});
            state.tensors.push_back({"adamw.v." + tensors_[i].name, second_[i], shared, &device_});
        }
        state.counters.push_back({"adamw.t", &t_, shared});
    }

private:
    std::vector<RuleTensor>       tensors_;
    AdamOptions                   options_;
    Device &                      device_;
    std::vector<std::span<float>> first_, second_;
    uint64_t                      t_  = 0;
    float                         lr_ = 0.0f;
    AdamStep                      step_;
};

class Muon : public UpdateRule {
public:
    Muon(std::vector<RuleTensor> tensors, const MuonOptions & options, Device & device)
        : tensors_(std::move(tensors)), options_(options), device_(device) {
        std::vector<size_t> sizes;
        size_t              largest = 0, room = 0;
        for (const RuleTensor & tensor : tensors_) {
            sizes.push_back(options.momentum > 0.0f ? tensor.weight.size() : 0);
            if (tensor.kind == ParamKind::matrix) {
                largest = std::max(largest, tensor.weight.size());
                room    = std::max(room, cuda::orthogonalise_bytes(tensor.rows, tensor.cols));
            }
        }
        momentum_ = make_device_state(device_, sizes, "muon's momentum");
        matrix_   = static_cast<float *>(device_.alloc(largest * sizeof(float), "muon's matrix"));
        room_     = device_.alloc(room, "muon's products");
    }

    void begin(float lr) override { lr_ = lr; }

    void update(int tensor, int64_t offset, int64_t n, const float * u, float scale) override {
        const RuleTensor & t    = tensors_[tensor];
        const float        rate = lr_ * t.lr, keep = 1.0f - rate * t.decay;
        float *            p       = t.weight.data() + offset;
        float *            m       = momentum_[tensor].data() + offset;
        const auto &       kernels = device_.kernels();
        if (t.kind != ParamKind::matrix) {
            const cuda::SignStep step{
                .scale = scale, .momentum = options_.momentum, .keep = keep, .step = rate};
            kernels.nesterov_sign(nullptr, n, step, u, m, p);
            return;
        }
        GT_CHECK(n == t.rows * t.cols, "muon needs whole matrices");
        kernels.nesterov(nullptr, n, scale, options_.momentum, u, m, matrix_);
        const float * direction =
            kernels.orthogonalise(nullptr, t.rows, t.cols, options_.n_steps, matrix_, room_);
        kernels.sgd(nullptr, n, keep, rate * muon_growth(t), direction, p);
    }

    std::span<float> momentum(int tensor) override { return momentum_[tensor]; }

    void add_state(OptimizerState & state, bool shared) override {
        for (size_t i = 0; i < tensors_.size() && options_.momentum > 0.0f; ++i) {
            state.tensors.push_back({"muon.m." + tensors_[i].name, momentum_[i], shared, &device_});
        }
    }

private:
    std::vector<RuleTensor>       tensors_;
    MuonOptions                   options_;
    Device &                      device_;
    std::vector<std::span<float>> momentum_;
    float *                       matrix_ = nullptr;  // the matrix being orthogonalised
    void *                        room_   = nullptr;
    float                         lr_     = 0.0f;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd_on_device(std::vector<RuleTensor> tensors, Device & device) {
    return std::make_unique<Sgd>(std::move(tensors), device);
}

std::unique_ptr<UpdateRule> make_adamw_on_device(
    std::vector<RuleTensor> tensors, const AdamOptions & options, Device & device
) {
    return std::make_unique<AdamW>(std::move(tensors), options, device);
}

std::unique_ptr<UpdateRule>
make_muon_on_device(std::vector<RuleTensor> tensors, const MuonOptions & options, Device & device) {
    return std::make_unique<Muon>(std::move(tensors), options, device);
}

}  // namespace gt
