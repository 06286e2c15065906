#include "optim/on-device.h"

#include "ggml-train/cuda/table.h"
#include "optim/device/dct-program.h"
#include "optim/device/device-rules.h"
#include "optim/wire/in-flight.h"

#include <algorithm>
#include <map>

namespace gt {

namespace {

// Device memory that grows on demand.
class Room {
public:
    Room(Device & device, const char * what) : device_(device), what_(what) {}

    uint8_t * of(size_t bytes) {
        if (bytes > bytes_) {
            bytes_ = std::max(bytes, 2 * bytes_);
            data_  = static_cast<uint8_t *>(device_.alloc(bytes_, what_));
        }
        return data_;
    }

    uint8_t * put(const void * from, size_t bytes) {
        uint8_t * to = of(bytes);
        device_.write(to, from, bytes);
        return to;
    }

private:
    Device &     device_;
    const char * what_;
    uint8_t *    data_  = nullptr;
    size_t       bytes_ = 0;
};

// decoupled.cpp with the demo replicator, tensor by tensor.
class DemoOnDevice : public RankOptimizer {
public:
    DemoOnDevice(
        OptimizerParts parts, const OptimOptions & options, Wire wire, bool sign, Device & device
    )
        : RankOptimizer(std::move(parts)), decay_(options.decay), sign_(sign), device_(device) {
        std::vector<size_t> sizes;
        for (size_t t = 0; t < parts_.units->shapes().size(); ++t) {
            sizes.push_back(parts_.units->params()[t].weight.size());
            tensors_.push_back(make_tensor(parts_.units->shapes()[t], sizes.back(), options, wire));
        }
        for (const int i : parts_.units->owned()) {
            Tensor & tensor   = tensors_[parts_.units->all()[i].tensor];
            tensor.first_unit = std::min(tensor.first_unit, i);
        }
        momentum_                         = make_device_state(device_, sizes, "the momentum");
        const std::vector<size_t> largest = {*std::max_element(sizes.begin(), sizes.end())};
        update_ = make_device_state(device_, largest, "an update")[0].data();
        message_.of(n_bytes_);
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
        const cuda::DemoPiece * pieces = put_pieces(inbox);
        const int               n      = static_cast<int>(inbox.size());
        parts_.rule->begin(inbox.lr());
        for (size_t t = 0; t < tensors_.size(); ++t, pieces += n) {
            const auto size = static_cast<int64_t>(momentum_[t].size());
            if (size == 0) {
                continue;
            }
            device_.kernels().demo_merge(nullptr, tensors_[t].chunks, pieces, n, update_);
            if (sign_) {
                device_.kernels().take_sign(nullptr, size, update_);
            }
            parts_.rule->update(static_cast<int>(t), 0, size, update_, 1.0f);
        }
        device_.wait();
    }

    void take_back(uint64_t step) override {
        Bytes kept = in_flight_.take(step);
        if (kept.empty()) {
            return;
        }
        const Part      part    = parts_.layout->part(step);
        const Bytes     message = parts_.layout->part_of(part, step, std::move(kept));
        const uint8_t * bytes   = message_.put(message.data() + kHeadBytes, n_bytes_);
        const uint8_t * host    = message.data() + kHeadBytes;
        for (const int i : parts_.units->owned()) {
            const Unit &     unit   = parts_.units->all()[i];
            const Tensor &   tensor = tensors_[unit.tensor];
            const int64_t    at     = parts_.units->offset(unit);
            cuda::DemoChunks chunks = tensor.chunks;
            chunks.n_chunks         = parts_.units->size(unit) / tensor.chunk_size();
            const int64_t from      = tensor.offset + at / tensor.chunk_size() * tensor.chunk_bytes;
            if (is_valid(parts_.layout->replicator(), part.plan, unit, host + from)) {
                device_.kernels().demo_give_back(
                    nullptr, chunks, bytes + from, momentum_[unit.tensor].data() + at
                );
            }
        }
        device_.wait();
    }

    void drop_residual() override {
        for (const std::span<float> tensor : momentum_) {
            Floats{tensor, &device_}.zero();
        }
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
        Bytes message;
        if (parts_.layout->due(step)) {
            message = parts_.layout->blank(parts_.layout->part(step), step, lr);
        }
        uint8_t * out = message.empty() ? nullptr : message_.of(n_bytes_);
        for (size_t t = 0; t < tensors_.size(); ++t) {
            const Tensor &       tensor = tensors_[t];
            const float * const  grad   = parts_.units->params()[t].grad.data();
            const cuda::DemoFold fold{grad_scale != 0.0f ? grad : nullptr, decay_, lr * grad_scale};
            if (tensor.chunks.n_chunks > 0) {
                device_.kernels().demo_extract(
                    nullptr, tensor.chunks, fold, momentum_[t].data(),
                    out ? out + tensor.offset : nullptr
                );
            }
        }
        if (message.empty()) {
            device_.wait();
            return message;
        }
        device_.read(message.data() + kHeadBytes, out, n_bytes_);
        in_flight_.keep(step, message);
        return message;
    }

private:
    // This rank's rows of one tensor.
    struct Tensor {
        cuda::DemoChunks chunks;
        int64_t          offset      = 0;  // of its bytes in our part of a message
        int64_t          chunk_bytes = 0;
        int              first_unit  = INT32_MAX;

        int64_t chunk_size() const { return int64_t{chunks.rows} * chunks.cols; }
        int64_t bytes() const { return chunks.n_chunks * chunk_bytes; }
    };

    // Tables are uploaded once per chunk geometry.
    Tensor
    make_tensor(const TensorShape & shape, size_t size, const OptimOptions & options, Wire wire) {
        const ChunkGrid grid = chunk_grid(shape, parse_chunk(options.chunk));
        const DemoPlan  plan(grid, values_per_chunk(options, grid.chunk_size()), wire);
        uint8_t *&      tables = tables_[{grid.side_rows, grid.side_cols}];
        if (tables == nullptr) {
            tables = static_cast<uint8_t *>(device_.alloc(plan.tables().size(), "DCT tables"));
            device_.write(tables, plan.tables().data(), plan.tables().size());
        }
        Tensor tensor;
        tensor.chunks      = plan.chunks(tables, static_cast<int64_t>(size) / grid.chunk_size());
        tensor.chunk_bytes = plan.bytes_per_chunk();
        tensor.offset      = n_bytes_;
        n_bytes_ += tensor.bytes();
        return tensor;
    }

    // Uploads our rows of the round's messages. Returns one piece per message for each tensor.
    const cuda::DemoPiece * put_pieces(const Inbox & inbox) {
        Bytes staging;
        for (size_t i = 0; i < inbox.size(); ++i) {
            for (const Tensor & tensor : tensors_) {
                if (tensor.chunks.n_chunks > 0) {
                    const uint8_t * from = inbox.pieces(tensor.first_unit)[i].bytes;
                    staging.insert(staging.end(), from, from + tensor.bytes());
                }
            }
        }
        const std::vector<Piece>     messages = inbox.pieces(0);
        const uint8_t *              bytes    = contents_.put(staging.data(), staging.size());
        std::vector<cuda::DemoPiece> pieces;
        for (const Tensor & tensor : tensors_) {
            for (size_t i = 0; i < messages.size(); ++i) {
                pieces.push_back(
                    {bytes + static_cast<int64_t>(i) * n_bytes_ + tensor.offset, messages[i].weight,
                     messages[i].scale}
                );
            }
        }
        return reinterpret_cast<const cuda::DemoPiece *>(
            pieces_.put(pieces.data(), pieces.size() * sizeof(pieces[0]))
        );
    }

    float                                            decay_;
    bool                                             sign_;
    Device &                                         device_;
    std::map<std::pair<int64_t, int64_t>, uint8_t *> tables_;
    std::vector<Tensor>                              tensors_;
    int64_t                                          n_bytes_ = 0;  // of our part of a message
    std::vector<std::span<float>>                    momentum_;
    InFlight                                         in_flight_;
    float *                                          update_ = nullptr;
    Room message_{device_, "a message"}, contents_{device_, "a round's messages"},
        pieces_{device_, "a round's messages"};
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

std::unique_ptr<Optimizer> make_demo_on_device(
    OptimizerParts parts, const OptimOptions & options, Wire wire, bool sign, Device & device
) {
    return std::make_unique<DemoOnDevice>(std::move(parts), options, wire, sign, device);
}

void step_on_device(
    const OptimizerParts & parts, bool sign, float lr, float grad_scale, Device & device
) {
    parts.rule->begin(lr);
    for (size_t t = 0; t < parts.units->params().size(); ++t) {
        const std::span<float> grad = parts.units->params()[t].grad;
        const auto             n    = static_cast<int64_t>(grad.size());
        if (n == 0) {
            continue;
        }
        if (sign) {
            device.kernels().take_sign(nullptr, n, grad.data());
        }
        parts.rule->update(static_cast<int>(t), 0, n, grad.data(), sign ? 1.0f : grad_scale);
    }
    device.wait();
}

std::unique_ptr<Optimizer> make_steps_on_device(OptimizerParts parts, bool sign, Device & device) {
    return std::make_unique<StepsOnDevice>(std::move(parts), sign, device);
}

}  // namespace gt
