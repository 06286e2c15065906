// tests/tools/ranks-fixture.h — small models, flags and runs of several ranks in one process; synthetic tokens.
#pragma once

#include "comm/local/check-ranks.h"
#include "comm/local/run-ranks.h"
#include "comm/meet.h"
#include "ggml-train/run/checkpoint.h"
#include "models/init.h"
#include "tests/catch.h"
#include "tests/scratch.h"
#include "tools/train/memory-plan.h"
#include "tools/train/rank.h"

#include <atomic>
#include <chrono>

namespace gt {

inline ModelConfig small(const std::string & arch, int64_t n_layer = 3) {
    ModelConfig c;
    c.arch      = arch;
    c.n_embd    = 32;
    c.n_layer   = n_layer;
    c.n_head    = 2;
    c.n_head_kv = arch == "llama" ? 1 : 2;
    c.n_ff      = 48;
    c.n_vocab   = 67;  // padded to 80 rows
    c.n_ctx     = 8;
    c.tied      = arch != "llama";
    if (arch == "vit") {
        c.image_size = 8;
        c.patch_size = 4;
        c.channels   = 1;
        c.n_classes  = 5;
    }
    return c;
}

inline Batch some_batch(const ModelConfig & c, uint64_t step, int64_t n) {
    Batch         batch{.n_samples = n};
    const int64_t T = c.n_ctx, pixels = c.image_size * c.image_size * c.channels;
    for (int64_t i = 0; i < n * pixels; ++i) {
        batch.images.push_back(random_uniform(random_bits(8, step, i)) - 0.5f);
    }
    for (int64_t i = 0; takes_images(c) && i < n; ++i) {
        batch.labels.push_back(static_cast<int32_t>(random_bits(9, step, i) % c.n_classes));
    }
    for (int64_t i = 0; !takes_images(c) && i < n * T; ++i) {
        batch.tokens.push_back(static_cast<int32_t>(random_bits(8, step, i) % c.n_vocab));
        batch.labels.push_back(static_cast<int32_t>(random_bits(9, step, i) % c.n_vocab));
    }
    if (takes_images(c)) {
        for (int64_t i = 0; i < n * 2 * c.n_layer; ++i) {
            batch.depth.push_back(random_bits(5, step, i) % 4 == 0 ? 0.0f : 1.25f);
        }
    }
    return batch;
}

// Synthetic samples. Remembers which steps were asked for.
class SomeData : public Data {
public:
    explicit SomeData(const ModelConfig & config) : config_(config) {}

    Batch train(uint64_t step, int64_t n) override {
        steps.push_back(step);
        return some_batch(config_, step, n);
    }
    Score    validate(Evaluator &, bool) override { return {}; }
    uint64_t digest() const override { return 0; }

    std::vector<uint64_t> steps;

private:
    ModelConfig config_;
};

inline ModelFile some_model(const ModelConfig & config) {
    ModelFile model = empty_model(config);
    init_model(model, 3);
    return model;
}

inline RunPlan some_plan(int ranks, const std::string & shard, int64_t batch, int64_t micro) {
    RunPlan plan;
    plan.optim.replicator = "none";
    plan.optim.rule       = "adamw";
    plan.schedule         = {.lr = 1e-3f, .steps = 100};
    plan.ranks            = ranks;
    plan.shard            = shard;
    plan.batch            = batch;
    plan.micro            = micro;
    plan.threads          = 1;
    plan.T                = 8;  // of small()
    return plan;
}

// A host alone that keeps what it would send, and the digests of its state.
class Recorder : public Peers {
public:
    Joined join(std::span<const uint8_t> m, bool fresh) override { return self_->join(m, fresh); }
    std::optional<Bytes> slice(int i) override { return self_->slice(i); }
    Bytes                mark() override { return self_->mark(); }
    void                 publish(uint64_t step, uint64_t n_samples, Bytes message) override {
        messages.push_back(message);
        self_->publish(step, n_samples, std::move(message));
    }
    std::optional<Collected> missed(bool) override { return std::nullopt; }
    Collected                collect(uint64_t step) override { return self_->collect(step); }
    void                     pause() override {}
    void applied(Applied applied) override { digests.push_back(applied.state_digest); }

    std::vector<Bytes>    messages;
    std::vector<uint64_t> digests;

private:
    std::unique_ptr<Peers> self_ = make_self_peers("self");
};

struct Trained {
    std::vector<double>             losses, norms;
    std::vector<std::vector<float>> weights;
    std::vector<Bytes>              messages;
    std::vector<uint64_t>           digests;
};

inline std::vector<float> joined(const HostTensor & tensor) {
    std::vector<float> all;
    for (const HostTensor::Piece & piece : tensor.pieces) {
        const HostView view = piece.view();
        all.insert(all.end(), view.values().begin(), view.values().end());
    }
    return all;
}

inline Trained train(const ModelConfig & config, RunPlan plan, int n_steps = 5) {
    plan.depth = takes_images(config);
    plan.T     = takes_images(config) ? config.n_positions() : config.n_ctx;
    SomeData        data(config);
    const ModelFile model = some_model(config);
    Recorder        peers;
    Trained         trained;
    run_ranks(plan.ranks, [&](LocalGroup & ranks) {
        TrainRank rank(plan, model, data, ranks, peers);
        rank.trainer().join({}, true);
        for (int i = 0; i < n_steps; ++i) {
            const StepResult result = rank.trainer().train();
            if (ranks.rank() == 0) {
                trained.losses.push_back(result.loss);
                trained.norms.push_back(result.grad_norm);
            }
        }
        on_first(ranks, [&] {
            for (const HostTensor & weight : rank.state().weights) {
                trained.weights.push_back(joined(weight));
            }
        });
    });
    trained.messages = std::move(peers.messages);
    trained.digests  = std::move(peers.digests);
    return trained;
}

inline double farthest(const Trained & a, const Trained & b) {
    double most = 0.0;
    REQUIRE(a.weights.size() == b.weights.size());
    for (size_t i = 0; i < a.weights.size(); ++i) {
        REQUIRE(a.weights[i].size() == b.weights[i].size());
        for (size_t k = 0; k < a.weights[i].size(); ++k) {
            most = std::max<double>(most, std::fabs(a.weights[i][k] - b.weights[i][k]));
        }
    }
    return most;
}

}  // namespace gt
