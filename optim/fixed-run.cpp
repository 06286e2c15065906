// optim/fixed-run.cpp — see fixed-run.h.
#include "optim/fixed-run.h"

#include "optim/optim.h"

namespace gt {

namespace {

constexpr uint64_t kFixedSteps = 4;

// A model of one matrix and one vector, and its optimizer.
struct FixedHost {
    FixedHost(uint64_t id, const OptimOptions & options, Workers & workers) : id(id) {
        for (size_t i = 0; i < weight.size(); ++i) {
            weight[i] = random_uniform(random_bits(7, i)) - 0.5f;
        }
        optimizer = make_optimizer(options, params(), workers);
    }

    std::vector<ParamView> params() {
        const auto param = [&](const char * name, ParamKind kind, size_t at, int64_t cols,
                               int64_t rows) {
            ParamView view{.name = name, .ne = {cols, rows, 1, 1}, .kind = kind};
            view.row_end = shape_of(view).rows;
            view.weight  = std::span(weight).subspan(at, static_cast<size_t>(cols * rows));
            view.grad    = std::span(grad).subspan(at, static_cast<size_t>(cols * rows));
            return view;
        };
        return {
            param("matrix", ParamKind::matrix, 0, 40, 24),
            param("vector", ParamKind::vector, size_t{40} * 24, 50, 1)};
    }

    Bytes prepare(uint64_t step) {
        for (size_t i = 0; i < grad.size(); ++i) {
            grad[i] = 0.01f * (random_uniform(random_bits(11, id, step, i)) - 0.5f);
        }
        return optimizer->prepare(step, 0.003f).message;
    }

    uint64_t                   id;
    std::vector<float>         weight = std::vector<float>(40 * 24 + 50), grad = weight;
    std::unique_ptr<Optimizer> optimizer;
};

uint64_t digest_of_run(const OptimOptions & options, uint64_t digest) {
    Workers   workers(1);
    FixedHost hosts[] = {{0, options, workers}, {1, options, workers}};
    for (uint64_t step = 0; step < kFixedSteps; ++step) {
        Round round{.step = step, .has_mine = true};
        for (FixedHost & host : hosts) {
            Bytes message = host.prepare(step);
            digest        = digest64(message, digest);
            if (!message.empty()) {
                round.messages.push_back({std::to_string(host.id), 1 + host.id, std::move(message)}
                );
            }
        }
        if (shares_of(options) > 0 && !round.messages.empty()) {
            round = Shares(options, hosts[0].params()).mean_round(round, shares_of(options));
            for (const Message & mean : round.messages) {
                digest = digest64(mean.bytes, digest);
            }
        }
        for (FixedHost & host : hosts) {
            host.optimizer->apply(round);
            const auto * bytes = reinterpret_cast<const uint8_t *>(host.weight.data());
            digest             = digest64({bytes, host.weight.size() * sizeof(float)}, digest);
        }
    }
    return digest;
}

}  // namespace

uint64_t fixed_run_digest() {
    uint64_t digest = 0;
    for (const char * replicator : {"loco", "demo", "random", "diloco"}) {
        for (const char * rule : {"muon", "adamw"}) {
            OptimOptions options;
            options.replicator = replicator;
            options.rule       = rule;
            options.every      = options.replicator == "diloco" ? 2 : 1;
            options.shares     = options.rule == "adamw" ? 2 : -1;
            digest             = digest_of_run(options, digest);
        }
    }
    return digest;
}

}  // namespace gt
