// The host computes a step's scalars in the order of sgd.cpp, adamw.cpp and muon.cpp and launches kernels.
#include "optim/device/device-rules.h"

#include "ggml-train/cuda/table.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace gt {

std::vector<int> order_by_shape(std::span<const ParamView> params) {
    std::vector<int> order(params.size());
    std::iota(order.begin(), order.end(), 0);
    const auto shape = [&](int i) {
        return std::pair(params[i].row_end - params[i].row_begin, params[i].weight.size());
    };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return shape(a) < shape(b); });
    return order;
}

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
            sizes.push_back(moments_size(options, tensor));
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
        float * const p = t.weight.data() + offset;
        float * const m = first_[tensor].data();
        float * const v = second_[tensor].data();
        if (has_q8_moments(options_, t)) {
            const int64_t at = q8_moments_before(t, offset);
            device_.kernels().adamw_q8(
                nullptr, n / t.cols, t.cols, step, scale, u, p, m + at, v + at
            );
            return;
        }
        device_.kernels().adamw(nullptr, n, step, scale, u, p, m + offset, v + offset);
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

// Equal matrices that follow each other are orthogonalised together.
class Muon : public UpdateRule {
public:
    Muon(std::vector<RuleTensor> tensors, const MuonOptions & options, Device & device)
        : tensors_(std::move(tensors)), options_(options), device_(device) {
        std::vector<size_t>                            sizes;
        std::map<std::pair<int64_t, int64_t>, int64_t> shapes;  // and how many matrices have it
        for (const RuleTensor & tensor : tensors_) {
            sizes.push_back(options.momentum > 0.0f ? tensor.weight.size() : 0);
            if (tensor.kind == ParamKind::matrix) {
                ++shapes[{tensor.rows, tensor.cols}];
            }
        }
        size_t bytes = 0, room = 0;
        for (const auto & [shape, n] : shapes) {
            cuda::Matrices m{.rows = shape.first, .cols = shape.second};
            m.count = std::min(n, most_together(m));
            bytes   = std::max(bytes, bytes_of(m));
            room    = std::max(room, cuda::orthogonalise_bytes(m));
        }
        momentum_ = make_device_state(device_, sizes, "muon's momentum");
        matrices_ = static_cast<float *>(device_.alloc(bytes, "muon's matrices"));
        room_     = device_.alloc(room, "muon's products");
    }

    void begin(float lr) override {
        GT_CHECK(waiting_.empty(), "finish ends every step");
        lr_ = lr;
    }

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
        if (!waiting_.empty() && (t.rows != together_.rows || t.cols != together_.cols ||
                                  together_.count == most_together(together_))) {
            finish();
        }
        kernels.nesterov(
            nullptr, n, scale, options_.momentum, u, m,
            matrices_ + static_cast<int64_t>(waiting_.size()) * n
        );
        waiting_.push_back(tensor);
        together_ = {static_cast<int64_t>(waiting_.size()), t.rows, t.cols};
    }

    void finish() override {
        if (waiting_.empty()) {
            return;
        }
        const auto &  kernels = device_.kernels();
        const float * direction =
            kernels.orthogonalise(nullptr, together_, options_.n_steps, matrices_, room_);
        for (const int tensor : waiting_) {
            const RuleTensor & t    = tensors_[tensor];
            const float        rate = lr_ * t.lr;
            kernels.sgd(
                nullptr, together_.size(), 1.0f - rate * t.decay, rate * muon_growth(t), direction,
                t.weight.data()
            );
            direction += together_.size();
        }
        waiting_.clear();
    }

    std::span<float> momentum(int tensor) override { return momentum_[tensor]; }

    void add_state(OptimizerState & state, bool shared) override {
        for (size_t i = 0; i < tensors_.size() && options_.momentum > 0.0f; ++i) {
            state.tensors.push_back({"muon.m." + tensors_[i].name, momentum_[i], shared, &device_});
        }
    }

private:
    static size_t bytes_of(const cuda::Matrices & m) {
        return static_cast<size_t>(m.count * m.size()) * sizeof(float);
    }

    // A dozen matrices of GPT-2's size fill any GPU; more would only take memory.
    static int64_t most_together(cuda::Matrices m) {
        constexpr size_t kBytes = size_t{256} << 20;
        m.count                 = 1;
        return std::max<int64_t>(
            1, static_cast<int64_t>(kBytes / (bytes_of(m) + cuda::orthogonalise_bytes(m)))
        );
    }

    std::vector<RuleTensor>       tensors_;
    MuonOptions                   options_;
    Device &                      device_;
    std::vector<std::span<float>> momentum_;
    std::vector<int>              waiting_;   // tensors whose matrices are to be orthogonalised
    cuda::Matrices                together_;  // what they are
    float *                       matrices_ = nullptr;
    void *                        room_     = nullptr;
    float                         lr_       = 0.0f;
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
