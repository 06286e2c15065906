#include "optim/on-device.h"

#include "optim/device/device-replicator.h"
#include "optim/device/device-rules.h"
#include "optim/wire/in-flight.h"

#include <algorithm>

namespace gt {

namespace {

// decoupled.cpp, tensor by tensor.
class DecoupledOnDevice : public RankOptimizer {
public:
    DecoupledOnDevice(
        OptimizerParts                    parts,
        std::unique_ptr<DeviceReplicator> replicator,
        const DecoupledOptions &          options,
        Device &                          device
    )
        : RankOptimizer(std::move(parts)), options_(options), device_(device),
          replicator_(std::move(replicator)) {
        std::vector<size_t> sizes;
        for (const ParamView & param : parts_.units->params()) {
            sizes.push_back(param.weight.size());
        }
        momentum_                         = make_device_state(device_, sizes, "the momentum");
        const std::vector<size_t> largest = {*std::max_element(sizes.begin(), sizes.end())};
        update_ = make_device_state(device_, largest, "an update")[0].data();
    }

    // Q = mean(q of every host);  u = restore(Q);  u = sign(u);  p = rule(p, u)
    void apply(const Round & round) override {
        const Inbox inbox(*parts_.layout, round, parts_.clip_messages);
        if (round.has_mine) {
            in_flight_.forget(round.step);
        }
        if (inbox.empty()) {
            return;
        }
        const bool missed = options_.subtract_missed_mean && !round.has_mine;
        begin(round.step);
        replicator_->receive(inbox);
        parts_.rule->begin(inbox.lr());
        for (const int t : order_by_shape(parts_.units->params())) {
            const auto size = static_cast<int64_t>(momentum_[t].size());
            if (size == 0) {
                continue;
            }
            const auto & kernels = device_.kernels();
            replicator_->merge(t, update_);
            if (missed) {
                // what was applied in full: only the difference to ours stays pending
                kernels.sgd(nullptr, size, 1.0f, 1.0f, update_, momentum_[t].data());
            }
            if (options_.sign) {
                kernels.take_sign(nullptr, size, update_);
            }
            parts_.rule->update(t, 0, size, update_, 1.0f);
        }
        parts_.rule->finish();
        device_.wait();
    }

    void take_back(uint64_t step) override {
        Bytes kept = in_flight_.take(step);
        if (kept.empty()) {
            return;
        }
        const Part      part    = begin(step);
        const Bytes     message = parts_.layout->part_of(part, step, std::move(kept));
        const uint8_t * content = message_.put(message.data() + kHeadBytes, n_bytes());
        for (const int i : parts_.units->owned()) {
            const Unit &    unit  = parts_.units->all()[i];
            const uint8_t * bytes = message.data() + part.offsets[i];
            if (is_valid(parts_.layout->replicator(), part.plan, unit, bytes)) {
                replicator_->give_back(i, content, momentum_[unit.tensor].data());
            }
        }
        device_.wait();
    }

    void drop_residual() override {
        for (const std::span<float> tensor : momentum_) {
            device_.kernels().set_zero(nullptr, tensor.data(), tensor.size_bytes());
        }
        device_.wait();
    }

    OptimizerState state() override {
        OptimizerState state;
        for (size_t t = 0; t < momentum_.size(); ++t) {
            const std::string & name = parts_.units->shapes()[t].name;
            state.tensors.push_back({"momentum." + name, momentum_[t], false, &device_});
        }
        in_flight_.add_state(state);
        parts_.rule->add_state(state, true);
        return state;
    }

protected:
    // m = decay·m + lr·g;  q = extract(m);  m -= restore(q)
    Bytes pack(uint64_t step, float lr, float grad_scale) override {
        const float decay = options_.fold_by_lr ? options_.decay : 1.0f;
        const float alpha = options_.fold_by_lr ? lr * grad_scale : grad_scale;
        Bytes       message;
        if (parts_.layout->due(step)) {
            message = parts_.layout->blank(begin(step), step, lr);
        }
        uint8_t * out = message.empty() ? nullptr : message_.of(n_bytes());
        for (size_t t = 0; t < momentum_.size(); ++t) {
            const float * grad = parts_.units->params()[t].grad.data();
            const Fold    fold{grad_scale != 0.0f ? grad : nullptr, decay, alpha};
            if (!momentum_[t].empty()) {
                replicator_->extract(static_cast<int>(t), fold, momentum_[t].data(), out);
            }
        }
        if (message.empty()) {
            device_.wait();
            return message;
        }
        device_.read(message.data() + kHeadBytes, out, n_bytes());
        in_flight_.keep(step, message);
        return message;
    }

private:
    Part begin(uint64_t step) {
        Part part = parts_.layout->part(step);
        replicator_->begin(parts_.layout->replicator(), parts_.layout->head().wire, part.plan);
        return part;
    }

    size_t n_bytes() const { return static_cast<size_t>(replicator_->bytes()); }

    DecoupledOptions                  options_;
    Device &                          device_;
    std::unique_ptr<DeviceReplicator> replicator_;
    std::vector<std::span<float>>     momentum_;
    InFlight                          in_flight_;
    float *                           update_ = nullptr;
    Room                              message_{device_, "a message"};
};

// Training alone.
class StepsOnDevice : public RankOptimizer {
public:
    StepsOnDevice(OptimizerParts parts, bool sign, Device & device)
        : RankOptimizer(std::move(parts)), sign_(sign), device_(device) {}

    void apply(const Round &) override {}
    void take_back(uint64_t) override {}
    void drop_residual() override {}

    OptimizerState state() override {
        OptimizerState state;
        parts_.rule->add_state(state, false);
        return state;
    }

protected:
    Bytes pack(uint64_t, float lr, float grad_scale) override {
        if (grad_scale != 0.0f) {
            step_on_device(parts_, sign_, lr, grad_scale, device_);
        }
        return {};
    }

private:
    bool     sign_;
    Device & device_;
};

}  // namespace

std::unique_ptr<Optimizer> make_decoupled_on_device(
    OptimizerParts                    parts,
    std::unique_ptr<DeviceReplicator> replicator,
    const DecoupledOptions &          options,
    Device &                          device
) {
    return std::make_unique<DecoupledOnDevice>(
        std::move(parts), std::move(replicator), options, device
    );
}

void step_on_device(
    const OptimizerParts & parts, bool sign, float lr, float grad_scale, Device & device
) {
    parts.rule->begin(lr);
    for (const int t : order_by_shape(parts.units->params())) {
        const std::span<float> grad = parts.units->params()[t].grad;
        const auto             n    = static_cast<int64_t>(grad.size());
        if (n == 0) {
            continue;
        }
        if (sign) {
            device.kernels().take_sign(nullptr, n, grad.data());
        }
        parts.rule->update(t, 0, n, grad.data(), sign ? 1.0f : grad_scale);
    }
    parts.rule->finish();
    device.wait();
}

std::unique_ptr<Optimizer> make_steps_on_device(OptimizerParts parts, bool sign, Device & device) {
    return std::make_unique<StepsOnDevice>(std::move(parts), sign, device);
}

}  // namespace gt
