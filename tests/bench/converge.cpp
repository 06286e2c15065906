// bench-converge — what a replicator costs in loss: simulated hosts train one byte GPT on real text.
//
//   bench-converge TOKENS RESULTS.jsonl [--steps 400] [--hosts 4] [--only NAME] [--lr X]
//
// Each host has its own samples, its own copy of the model and its own optimizer, and hears the
// others' messages as over a network. One line of JSON per run is appended to RESULTS; runs that are
// there already are skipped, so that it can be interrupted. converge.py makes table and plot of it.
#include "ggml-train/data.h"
#include "ggml-train/schedule.h"
#include "ggml-train/trainer.h"
#include "models/blocks.h"
#include "models/init.h"
#include "models/presets.h"
#include "optim/optim.h"

#include <cstring>
#include <fstream>

using namespace gt;

namespace {

struct Setting {
    std::string        name;
    OptimOptions       optim;
    std::vector<float> rates;
};

OptimOptions demo(int64_t top_k, const char * wire, float decay, const char * rule = "sgd") {
    OptimOptions o{
        .replicator = "demo", .rule = rule, .wire = wire, .top_k = top_k, .decay = decay};
    return o;
}

OptimOptions rows(const char * replicator) {
    OptimOptions o{.replicator = replicator, .decay = 0.99f};
    return o;
}

OptimOptions with(const char * replicator) {
    OptimOptions o{.replicator = replicator};
    if (!std::strcmp(replicator, "diloco") || !std::strcmp(replicator, "sparseloco")) {
        o.every = 20;
    }
    return o;
}

std::vector<Setting> settings() {
    return {
        {"adamw-full", with("full"), {2e-3f, 4e-3f, 8e-3f}},
        {"demo-k32", demo(32, "auto", 0.99f), {2e-3f, 4e-3f, 6e-3f}},
        {"demo-k32-fp32", demo(32, "fp32", 0.99f), {2e-3f, 4e-3f, 6e-3f}},
        {"demo-k8", demo(8, "auto", 0.99f), {2e-3f, 4e-3f, 6e-3f}},
        {"demo-k8-fp32", demo(8, "fp32", 0.99f), {2e-3f, 4e-3f, 6e-3f}},
        {"demo-k128", demo(128, "auto", 0.99f), {2e-3f, 4e-3f, 6e-3f}},
        {"demo-k32-muon", demo(32, "auto", 0.95f, "muon"), {1e-2f, 2e-2f, 4e-2f}},
        {"demo-k128-muon", demo(128, "auto", 0.95f, "muon"), {1e-2f, 2e-2f, 4e-2f}},
        {"random", rows("random"), {2e-3f, 4e-3f, 6e-3f}},
        {"striding", rows("striding"), {2e-3f, 4e-3f, 6e-3f}},
        {"slicing", rows("slicing"), {2e-3f, 4e-3f, 6e-3f}},
        {"diloco", with("diloco"), {2e-3f, 4e-3f, 8e-3f}},
        {"sparseloco", with("sparseloco"), {2e-3f, 4e-3f, 8e-3f}},
        {"none", with("none"), {2e-3f, 4e-3f, 8e-3f}},
    };
}

struct Host {
    std::string                  name;
    std::unique_ptr<Transformer> model;
    std::vector<ParamView>       views;
    std::unique_ptr<Optimizer>   optimizer;
    std::unique_ptr<StepGraph>   graph;
};

class Simulation {
public:
    Simulation(const TokenData & data, const Setting & setting, int n_hosts)
        : data_(data), optim_(setting.optim), backend_("cpu", 2), workers_(2) {
        ModelConfig config = find_preset("gpt-tiny").config;
        config.n_vocab     = static_cast<int64_t>(data.info().n_vocab);
        for (int h = 0; h < n_hosts; ++h) {
            Host host{.name = format("host-%d", h), .model = make_model(backend_, config, true)};
            for (const TensorSpec & spec : tensor_specs(config)) {
                std::vector<float> values(spec.n_elements());
                init_tensor(spec, 1, values);
                host.model->weights().set(host.model->weights().at(spec.name), values);
            }
            host.views     = host.model->weights().views();
            host.optimizer = make_optimizer(optim_, host.views, workers_);
            host.graph     = std::make_unique<StepGraph>(
                backend_, *host.model, GraphOptions{.B = kBatch, .T = kContext}
            );
            hosts_.push_back(std::move(host));
        }
        eval_ = std::make_unique<StepGraph>(
            backend_, *hosts_[0].model,
            GraphOptions{.B = kBatch, .T = kContext, .goal = GraphOptions::Goal::loss}
        );
    }

    void step(uint64_t step, float lr) {
        Round round{.round = step, .has_mine = true};
        for (Host & host : hosts_) {
            const Batch batch = data_.train(1, step, host.name, 0, kBatch, kContext);
            host.graph->run(batch, 1.0f / static_cast<float>(batch.labels.size()));
            const double norm    = grad_norm(optim_, host.views, workers_);
            const float  scale   = norm > 1.0 ? static_cast<float>(1.0 / norm) : 1.0f;
            Bytes        message = host.optimizer->prepare(step, lr, scale);
            if (!message.empty()) {
                sent_ += message.size();
                round.messages.push_back({host.name, 1, std::move(message)});
            }
        }
        for (Host & host : hosts_) {
            host.optimizer->apply(round);
        }
    }

    double validate() {
        std::vector<Batch> batches;
        const int64_t      n = data_.n_val_windows(kContext, 64 * kBatch);
        for (int64_t i = 0; i + kBatch <= n; i += kBatch) {
            batches.push_back(data_.val(i, i + kBatch, kContext, n));
        }
        return evaluate(*eval_, batches);
    }

    // Bytes that one host sent.
    double sent() const { return static_cast<double>(sent_) / static_cast<double>(hosts_.size()); }

private:
    static constexpr int64_t kBatch = 8, kContext = 128;

    const TokenData &          data_;
    OptimOptions               optim_;
    Backend                    backend_;
    Workers                    workers_;
    std::vector<Host>          hosts_;
    std::unique_ptr<StepGraph> eval_;
    uint64_t                   sent_ = 0;
};

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 3) {
        std::fprintf(
            stderr, "usage: bench-converge TOKENS RESULTS.jsonl [--steps N] [--hosts N] [--only "
                    "NAME] [--lr X]\n"
        );
        return 2;
    }
    int         n_steps = 400, n_hosts = 4;
    std::string only;
    float       rate = 0.0f;
    for (int i = 3; i + 1 < argc; i += 2) {
        n_steps = !std::strcmp(argv[i], "--steps") ? std::atoi(argv[i + 1]) : n_steps;
        n_hosts = !std::strcmp(argv[i], "--hosts") ? std::atoi(argv[i + 1]) : n_hosts;
        only    = !std::strcmp(argv[i], "--only") ? argv[i + 1] : only;
        rate    = !std::strcmp(argv[i], "--lr") ? std::strtof(argv[i + 1], nullptr) : rate;
    }
    const TokenData data(argv[1]);
    std::string     done;
    {
        std::ifstream file(argv[2]);
        done.assign(std::istreambuf_iterator<char>(file), {});
    }
    for (const Setting & setting : settings()) {
        for (float lr : rate > 0.0f ? std::vector{rate} : setting.rates) {
            const std::string head = format(
                "{\"name\": \"%s\", \"lr\": %g, \"steps\": %d, \"hosts\": %d, ",
                setting.name.c_str(), lr, n_steps, n_hosts
            );
            if ((!only.empty() && only != setting.name) || done.find(head) != std::string::npos) {
                continue;
            }
            Simulation     simulation(data, setting, n_hosts);
            const Schedule schedule{.lr = lr, .steps = n_steps};
            for (int step = 0; step < n_steps; ++step) {
                simulation.step(step, schedule.at(step));
            }
            const std::string line = head + format(
                                                "\"val_loss\": %.5f, \"sent_mb\": %.3f}",
                                                simulation.validate(), simulation.sent() / 1e6
                                            );
            std::ofstream(argv[2], std::ios::app) << line << "\n";
            std::printf("%s\n", line.c_str());
            std::fflush(stdout);
        }
    }
}
