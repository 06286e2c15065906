// tests/ranks-fixture.h — small models, flags and runs of several ranks in one process; synthetic tokens.
#pragma once

#include "comm/comm.h"
#include "comm/local.h"
#include "ggml-train/checkpoint.h"
#include "ggml-train/ggml-device.h"
#include "models/init.h"
#include "tests/catch.h"
#include "tests/scratch.h"
#include "tools/check-ranks.h"
#include "tools/train-memory.h"
#include "tools/train-rank.h"

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
    for (int64_t i = 0; c.arch == "vit" && i < n; ++i) {
        batch.labels.push_back(static_cast<int32_t>(random_bits(9, step, i) % c.n_classes));
    }
    for (int64_t i = 0; c.arch != "vit" && i < n * T; ++i) {
        batch.tokens.push_back(static_cast<int32_t>(random_bits(8, step, i) % c.n_vocab));
        batch.labels.push_back(static_cast<int32_t>(random_bits(9, step, i) % c.n_vocab));
    }
    if (c.arch == "vit") {
        for (int64_t i = 0; i < n * 2 * c.n_layer; ++i) {
            batch.depth.push_back(random_bits(5, step, i) % 4 == 0 ? 0.0f : 1.25f);
        }
    }
    return batch;
}

inline TrainTask some_task(const ModelConfig & config, int64_t batch) {
    TrainTask task;
    task.model = empty_model(config);
    init_model(task.model, 3);
    task.T     = config.arch == "vit" ? config.n_positions() : config.n_ctx;
    task.depth = config.arch == "vit";
    task.train = [=](uint64_t step, const std::string &, int64_t, int64_t) {
        return some_batch(config, step, batch);
    };
    return task;
}

inline TrainFlags some_flags(int ranks, const std::string & shard, int64_t batch, int64_t micro) {
    TrainFlags f;
    f.optim.replicator = "none";
    f.optim.rule       = "adamw";
    f.schedule         = {.lr = 1e-3f, .steps = 100};
    f.ranks            = ranks;
    f.shard            = shard;
    f.batch            = batch;
    f.micro            = micro;
    f.threads          = 1;
    return f;
}

// A host alone that keeps what it would send, and the digests of its state.
class Recorder : public RunPeers {
public:
    const std::string & host() const override { return self_->host(); }
    void                publish(uint64_t round, uint64_t weight, Bytes message) override {
        messages.push_back(message);
        self_->publish(round, weight, std::move(message));
    }
    Round    collect(uint64_t round) override { return self_->collect(round); }
    Joined   join(std::span<const uint8_t> m, bool fresh) override { return self_->join(m, fresh); }
    uint64_t n_behind() override { return 0; }
    Bytes    mark() override { return self_->mark(); }
    void     report(const StepReport & r) override { digests.push_back(r.state_digest); }
    void     put_part(uint64_t, int, Bytes) override {}

    std::vector<Bytes>    messages;
    std::vector<uint64_t> digests;

private:
    std::unique_ptr<RunPeers> self_ = make_self_peers("self");
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

inline Trained train(const ModelConfig & config, const TrainFlags & f, int n_steps = 5) {
    const TrainTask task = some_task(config, f.batch);
    Recorder        peers;
    Trained         trained;
    run_ranks(f.ranks, [&](LocalGroup & ranks) {
        TrainRank rank(f, task, ranks, peers);
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
