#include "optim/device/device-rules.h"
#include "optim/local-arrays.h"
#include "optim/on-device.h"

#include <algorithm>

namespace gt {

namespace {

// local-on-host.cpp, tensor by tensor.
class LocalOnDevice : public LocalArrays {
public:
    LocalOnDevice(
        const OptimizerParts &            parts,
        const LocalStepsOptions &         options,
        std::unique_ptr<DeviceReplicator> replicator,
        Device &                          device
    )
        : parts_(parts), options_(options), device_(device), replicator_(std::move(replicator)) {
        std::vector<size_t> sizes;
        for (const ParamView & param : parts_.units->params()) {
            sizes.push_back(param.weight.size());
        }
        const auto of_weights = [&](const char * what) {
            const Arrays arrays = make_device_state(device_, sizes, what);
            for (size_t t = 0; t < sizes.size(); ++t) {
                const std::span<float> weight = parts_.units->params()[t].weight;
                Floats{arrays[t], &device_}.write(Floats{weight, &device_}.read());
            }
            return arrays;
        };
        residual_ = make_device_state(device_, sizes, "the residual");
        anchor_   = of_weights("the anchor");
        if (options_.outer_momentum > 0.0f) {
            outer_ = make_device_state(device_, sizes, "the outer momentum");
        }
        if (options_.has_base()) {
            base_ = of_weights("the base");
        }
        const std::vector<size_t> largest = {*std::max_element(sizes.begin(), sizes.end())};
        change_ = make_device_state(device_, largest, "a change")[0].data();
    }

    void step(float lr, float grad_scale) override {
        step_on_device(parts_, options_.sign, lr, grad_scale, device_);
    }

    void extract(const Part & part, Bytes & message) override {
        replicator_->begin(parts_.layout->replicator(), parts_.layout->head().wire, part.plan);
        const std::vector<cuda::LocalUnits> tensors = units(nullptr, false);
        const auto                          n       = static_cast<size_t>(replicator_->bytes());
        uint8_t * const                     out     = message_.of(n);
        const bool                          fold    = replicator_->in_elements();
        for (size_t t = 0; t < tensors.size(); ++t) {
            if (tensors[t].n_units == 0) {
                continue;
            }
            device_.kernels().local_change(
                nullptr, tensors[t], fold, options_.residual_decay, !options_.overlap, change_
            );
            const Fold change{fold ? nullptr : change_, options_.residual_decay, 1.0f};
            replicator_->extract(static_cast<int>(t), change, residual_[t].data(), out);
        }
        device_.read(message.data() + kHeadBytes, out, n);
    }

    void apply(const Inbox & inbox, const Plan & plan, float share, bool correct) override {
        cuda::LocalStep step{
            .restore_norm   = options_.restore_norm,
            .outer_lr       = options_.outer_lr,
            .outer_momentum = options_.outer_momentum,
            .share          = share,
            .correction     = options_.correction,
            .overlap        = options_.overlap};
        replicator_->begin(parts_.layout->replicator(), parts_.layout->head().wire, plan);
        if (!inbox.empty()) {
            replicator_->receive(inbox);
            step.most_messages = inbox.n_effective();
        }
        const std::vector<cuda::LocalUnits> tensors =
            units(inbox.empty() ? nullptr : &inbox, correct);
        for (size_t t = 0; t < tensors.size(); ++t) {
            if (tensors[t].n_units > 0) {
                apply(static_cast<int>(t), tensors[t], step, !inbox.empty());
            }
        }
        device_.wait();
    }

    void take_back(const Part & part, const Bytes & message) override {
        const Replicator & replicator = parts_.layout->replicator();
        replicator_->begin(replicator, parts_.layout->head().wire, part.plan);
        replicator_->receive([&](int unit) {
            return std::vector<Piece>{{message.data() + part.offsets[unit]}};
        });
        for (size_t t = 0; t < residual_.size(); ++t) {
            const auto & of_tensor = replicator_->units(static_cast<int>(t));
            if (!of_tensor.empty()) {
                replicator_->merge(static_cast<int>(t), change_);
            }
            for (const int i : of_tensor) {
                const Unit &    unit  = parts_.units->all()[i];
                const uint8_t * bytes = message.data() + part.offsets[i];
                if (is_valid(replicator, part.plan, unit, bytes)) {
                    const int64_t at     = parts_.units->offset(unit);
                    float *       weight = parts_.units->params()[t].weight.data() + at;
                    device_.kernels().sgd(
                        nullptr, parts_.units->size(unit), 1.0f, 1.0f, change_ + at, weight
                    );
                }
            }
        }
        device_.wait();
    }

    void drop_residual() override {
        for (const std::span<float> tensor : residual_) {
            device_.kernels().set_zero(nullptr, tensor.data(), tensor.size_bytes());
        }
        device_.wait();
    }

    void add_state(OptimizerState & state) override {
        add_tensors(state, parts_, "residual.", residual_, false, &device_);
        add_tensors(state, parts_, "base.", base_, false, &device_);
        add_tensors(state, parts_, "anchor.", anchor_, true, &device_);
        for (size_t t = 0; t < anchor_.size(); ++t) {  // local steps start from the anchor
            auto & derived = state.tensors[state.tensors.size() - anchor_.size() + t].derived;
            derived        = {{parts_.units->params()[t].weight, &device_}};
            if (!base_.empty()) {
                derived.push_back({base_[t], &device_});
            }
        }
        add_tensors(state, parts_, "outer.", outer_, true, &device_);
    }

private:
    using Arrays = std::vector<std::span<float>>;

    void
    apply(int tensor, const cuda::LocalUnits & units, const cuda::LocalStep & step, bool merges) {
        const cuda::Kernels & kernels = device_.kernels();
        if (!merges) {
            kernels.local_apply(nullptr, units, step, nullptr, nullptr);
            return;
        }
        const auto n_sums  = static_cast<size_t>(units.n_pieces * cuda::kLocalSums);
        auto *     sums    = reinterpret_cast<double *>(sums_.of(n_sums * sizeof(double)));
        auto *     scalars = reinterpret_cast<cuda::LocalScalars *>(
            scalars_.of(static_cast<size_t>(units.n_units) * sizeof(cuda::LocalScalars))
        );
        replicator_->merge(tensor, change_);
        kernels.local_sums(nullptr, units, change_, sums);
        kernels.local_scalars(nullptr, units, step, sums, scalars);
        kernels.local_apply(nullptr, units, step, scalars, change_);
    }

    // The units of each tensor that take part in the round, in device memory. inbox: null, or the round's.
    std::vector<cuda::LocalUnits> units(const Inbox * inbox, bool correct) {
        std::vector<cuda::LocalUnit>  table;
        std::vector<cuda::LocalUnits> tensors(residual_.size());
        for (size_t t = 0; t < tensors.size(); ++t) {
            const int tensor = static_cast<int>(t);
            for (const int i : replicator_->units(tensor)) {
                const Unit &  unit = parts_.units->all()[i];
                const int64_t n    = parts_.units->size(unit);
                table.push_back(
                    {.offset = parts_.units->offset(unit),
                     .n      = n,
                     .first  = tensors[t].n_pieces,
                     .own    = inbox ? inbox->mean_square(i) : 0.0}
                );
                tensors[t].n_units += 1;
                tensors[t].n_pieces += (n + cuda::kSquaresPiece - 1) / cuda::kSquaresPiece;
            }
            const std::span<float> momentum =
                correct ? parts_.rule->momentum(tensor) : std::span<float>{};
            tensors[t].tensor = {
                .weight   = parts_.units->params()[t].weight.data(),
                .anchor   = anchor_[t].data(),
                .base     = base_.empty() ? nullptr : base_[t].data(),
                .outer    = outer_.empty() ? nullptr : outer_[t].data(),
                .residual = residual_[t].data(),
                .momentum = momentum.empty() ? nullptr : momentum.data()};
        }
        const cuda::LocalUnit * next = table.empty() ? nullptr : table_.put(table);
        for (cuda::LocalUnits & of_tensor : tensors) {
            of_tensor.table = next;
            next += of_tensor.n_units;
        }
        return tensors;
    }

    const OptimizerParts &            parts_;
    LocalStepsOptions                 options_;
    Device &                          device_;
    std::unique_ptr<DeviceReplicator> replicator_;
    Arrays                            anchor_, outer_, residual_, base_;
    float *                           change_ = nullptr;  // of the largest tensor
    Room message_{device_, "a message"}, table_{device_, "a round's units"},
        sums_{device_, "sums of squares"}, scalars_{device_, "sums of squares"};
};

}  // namespace

std::unique_ptr<LocalArrays> make_local_on_device(
    const OptimizerParts &            parts,
    const LocalStepsOptions &         options,
    std::unique_ptr<DeviceReplicator> replicator,
    Device &                          device
) {
    return std::make_unique<LocalOnDevice>(parts, options, std::move(replicator), device);
}

}  // namespace gt
