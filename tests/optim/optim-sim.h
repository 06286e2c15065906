// tests/optim/optim-sim.h — hosts that train together in one process, with synthetic gradients from
// (seed, host, step): different data and weights per host, shapes that do not divide evenly.
#pragma once

#include "optim/optim.h"
#include "optim/wire/codec.h"

#include <cstring>

namespace gt {

struct SimShape {
    std::string            name;
    std::array<int64_t, 4> ne;
    ParamKind              kind;
};

inline std::vector<SimShape> sim_shapes() {
    return {
        {"embedding", {96, 116, 1, 1}, ParamKind::embedding},  // 116 rows: chunks of 58
        {"square", {64, 128, 1, 1}, ParamKind::matrix},
        {"odd", {40, 67, 1, 1}, ParamKind::matrix},  // 67 rows: chunks of one
        {"deep", {4, 6, 30, 1}, ParamKind::matrix},  // viewed as 30 rows of 24
        {"vector", {130, 1, 1, 1}, ParamKind::vector},
        {"tiny", {3, 1, 1, 1}, ParamKind::vector},
    };
}

// A model's weights and gradients on one host, of which a rank may own some rows.
class SimModel {
public:
    explicit SimModel(std::vector<SimShape> shapes = sim_shapes()) : shapes_(std::move(shapes)) {
        for (size_t t = 0; t < shapes_.size(); ++t) {
            const auto & ne = shapes_[t].ne;
            const size_t n  = ne[0] * ne[1] * ne[2] * ne[3];
            weight.emplace_back(n);
            grad.emplace_back(n, 0.0f);
            for (size_t i = 0; i < n; ++i) {
                weight[t][i] = random_uniform(random_bits(7, t, i)) - 0.5f;
            }
        }
    }

    // Gradients of a host and step: noise plus a pattern common to all hosts.
    void set_gradients(uint64_t host, uint64_t step) {
        for (size_t t = 0; t < grad.size(); ++t) {
            for (size_t i = 0; i < grad[t].size(); ++i) {
                const float noise = random_uniform(random_bits(11, host, step, t << 32 | i)) - 0.5f;
                const float common = random_uniform(random_bits(13, t, i / 5)) - 0.5f;
                grad[t][i]         = 0.01f * (noise + 2.0f * common);
            }
        }
    }

    // The rows that rank r of n owns, cut where the options allow.
    std::vector<ParamView> params(const OptimOptions & options, int r = 0, int n = 1) {
        std::vector<ParamView> params;
        for (size_t t = 0; t < shapes_.size(); ++t) {
            ParamView param{.name = shapes_[t].name, .ne = shapes_[t].ne, .kind = shapes_[t].kind};
            const int64_t rows = shape_of(param).rows, cols = shape_of(param).cols;
            const int64_t step = cut_rows(options, param), units = (rows + step - 1) / step;
            param.row_begin     = std::min(rows, units * r / n * step);
            param.row_end       = std::min(rows, units * (r + 1) / n * step);
            const int64_t count = (param.row_end - param.row_begin) * cols;
            param.weight        = std::span(weight[t]).subspan(param.row_begin * cols, count);
            param.grad          = std::span(grad[t]).subspan(param.row_begin * cols, count);
            params.push_back(param);
        }
        return params;
    }

    std::vector<std::vector<float>> weight, grad;

private:
    std::vector<SimShape> shapes_;
};

// A copy of an optimizer's state.
struct SimState {
    std::vector<std::vector<float>> tensors;
    std::vector<uint64_t>           counters;
    std::vector<Bytes>              blobs;

    bool operator==(const SimState &) const = default;
};

inline SimState save(Optimizer & optimizer) {
    SimState saved;
    auto     state = optimizer.state();
    for (const auto & tensor : state.tensors) {
        saved.tensors.emplace_back(tensor.values.begin(), tensor.values.end());
    }
    for (const auto & counter : state.counters) {
        saved.counters.push_back(*counter.value);
    }
    for (const auto & blob : state.blobs) {
        saved.blobs.push_back(*blob.bytes);
    }
    return saved;
}

inline void load(Optimizer & optimizer, const SimState & saved) {
    auto state = optimizer.state();
    for (size_t i = 0; i < state.tensors.size(); ++i) {
        std::copy(
            saved.tensors[i].begin(), saved.tensors[i].end(), state.tensors[i].values.begin()
        );
    }
    for (size_t i = 0; i < state.counters.size(); ++i) {
        *state.counters[i].value = saved.counters[i];
    }
    for (size_t i = 0; i < state.blobs.size(); ++i) {
        *state.blobs[i].bytes = saved.blobs[i];
    }
}

inline bool
same_bits(const std::vector<std::vector<float>> & a, const std::vector<std::vector<float>> & b) {
    for (size_t t = 0; t < a.size(); ++t) {
        if (std::memcmp(a[t].data(), b[t].data(), a[t].size() * sizeof(float)) != 0) {
            return false;
        }
    }
    return a.size() == b.size();
}

inline uint64_t digest_of(const std::vector<std::vector<float>> & tensors, uint64_t seed = 0) {
    for (const auto & tensor : tensors) {
        const auto * bytes = reinterpret_cast<const uint8_t *>(tensor.data());
        seed               = digest64({bytes, tensor.size() * sizeof(float)}, seed);
    }
    return seed;
}

// One host: a model and its optimizer.
struct SimHost {
    SimHost(
        uint64_t              id,
        const OptimOptions &  options,
        Workers &             workers,
        std::vector<SimShape> shapes = sim_shapes()
    )
        : id(id), model(std::move(shapes)),
          optimizer(make_optimizer(options, model.params(options), workers)) {}

    Bytes prepare(uint64_t step, float lr = 0.003f) {
        model.set_gradients(id, step);
        return optimizer->prepare(step, lr).message;
    }

    uint64_t                   id;
    SimModel                   model;
    std::unique_ptr<Optimizer> optimizer;
};

inline uint64_t sim_weight(uint64_t host) {
    return 1 + host * 3;
}

// The round of a step, to which all hosts have sent.
inline Round sim_round(std::vector<std::unique_ptr<SimHost>> & hosts, uint64_t step) {
    Round round{.step = step, .has_mine = true};
    for (auto & host : hosts) {
        Bytes message = host->prepare(step);
        if (!message.empty()) {
            round.messages.push_back(
                {std::to_string(host->id), sim_weight(host->id), std::move(message)}
            );
        }
    }
    return round;
}

// One step of all hosts; all messages are committed.
inline void sim_step(std::vector<std::unique_ptr<SimHost>> & hosts, uint64_t step) {
    const Round round = sim_round(hosts, step);
    for (auto & host : hosts) {
        host->optimizer->apply(round);
    }
}

inline std::vector<std::unique_ptr<SimHost>>
sim_hosts(int n, const OptimOptions & options, Workers & workers) {
    std::vector<std::unique_ptr<SimHost>> hosts;
    for (int h = 0; h < n; ++h) {
        hosts.push_back(std::make_unique<SimHost>(h, options, workers));
    }
    return hosts;
}

}  // namespace gt
