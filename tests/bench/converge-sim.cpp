#include "tests/bench/converge-sim.h"

#include "ggml-train/run/schedule.h"
#include "models/init.h"

#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>

namespace gt {

namespace {

struct Host {
    std::string                  name;
    std::shared_ptr<Transformer> model;
    std::vector<ParamView>       views;
    std::unique_ptr<Optimizer>   optimizer;
    std::unique_ptr<StepGraph>   graph;
};

// Without local steps all hosts have equal weights (test-optim-hosts.cpp), so one model serves them all.
class Simulation {
public:
    Simulation(const SimTask & task, const OptimOptions & optim, int n_hosts, int n_threads)
        : task_(task), optim_(optim), backend_("cpu", n_threads), workers_(n_threads) {
        for (int h = 0; h < n_hosts; ++h) {
            Host host{.name = format("host-%d", h)};
            host.model        = h == 0 || has_local_steps(optim) ? new_model() : hosts_[0].model;
            Weights & weights = host.model->weights();
            host.views        = weights.views();
            host.optimizer    = make_optimizer(optim, host.views, workers_);
            host.graph        = std::make_unique<StepGraph>(
                backend_, *host.model,
                GraphOptions{
                           .B          = task.B,
                           .T          = task.T,
                           .image_size = task.config.image_size,
                           .channels   = task.config.channels}
            );
            hosts_.push_back(std::move(host));
        }
    }

    void step(uint64_t step, float lr) {
        Round round{.step = step, .has_mine = true};
        for (Host & host : hosts_) {
            const Batch batch = task_.train(step, host.name);
            host.graph->run(batch, 1.0f / static_cast<float>(batch.labels.size()));
            Bytes message = host.optimizer->prepare(step, lr, {.max_norm = task_.clip}).message;
            if (!message.empty()) {
                sent_ += message.size();
                round.messages.push_back({host.name, 1, std::move(message)});
            }
        }
        for (size_t h = 0; h < hosts_.size(); ++h) {
            if (h > 0 && !has_local_steps(optim_)) {
                round.messages.clear();  // the first host has updated the shared weights
            }
            hosts_[h].optimizer->apply(round);
        }
    }

    std::string validate() { return task_.validate(backend_, *hosts_[0].model); }

    // Bytes that one host sent.
    double sent() const { return static_cast<double>(sent_) / static_cast<double>(hosts_.size()); }

private:
    std::shared_ptr<Transformer> new_model() {
        std::shared_ptr<Transformer> model = make_model(backend_, task_.config, true);
        for (const TensorSpec & spec : tensor_specs(task_.config)) {
            std::vector<float> values(spec.n_elements());
            init_tensor(spec, 1, values);
            model->weights().set(model->weights().at(spec.name), values);
        }
        return model;
    }

    const SimTask &   task_;
    OptimOptions      optim_;
    Backend           backend_;
    Workers           workers_;
    std::vector<Host> hosts_;
    uint64_t          sent_ = 0;
};

struct SimFlags {
    int         steps = 400, hosts = 4, threads = 1;
    std::string only;

    explicit SimFlags(std::span<char *> args) {
        for (size_t i = 0; i + 1 < args.size(); i += 2) {
            const std::string name = args[i];
            int * const       n    = name == "--steps"     ? &steps
                                     : name == "--hosts"   ? &hosts
                                     : name == "--threads" ? &threads
                                                           : nullptr;
            if (n != nullptr) {
                *n = std::atoi(args[i + 1]);
            } else if (name == "--only") {
                only = args[i + 1];
            } else {
                throw Error(name + ": unknown; there are --steps, --hosts, --threads and --only");
            }
        }
    }
};

}  // namespace

int run_settings(
    const SimTask &                 task,
    const std::vector<SimSetting> & settings,
    const std::string &             results,
    std::span<char *>               args
) {
    const SimFlags    f(args);
    std::ifstream     file(results);
    const std::string done{std::istreambuf_iterator<char>(file), {}};
    for (const SimSetting & setting : settings) {
        for (const float lr : setting.rates) {
            const std::string head = format(
                "{\"task\": \"%s\", \"name\": \"%s\", \"lr\": %g, \"steps\": %d, \"hosts\": %d, ",
                task.name.c_str(), setting.name.c_str(), lr, f.steps, f.hosts
            );
            if ((!f.only.empty() && f.only != setting.name) ||
                done.find(head) != std::string::npos) {
                continue;
            }
            const auto     from = std::chrono::steady_clock::now();
            Simulation     simulation(task, setting.optim, f.hosts, f.threads);
            const Schedule schedule{.lr = lr, .steps = f.steps};
            for (int step = 0; step < f.steps; ++step) {
                simulation.step(step, schedule.at(step));
            }
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
            const std::string                   line = head + simulation.validate() +
                                     format(", \"sent_mb\": %.3f}", simulation.sent() / 1e6);
            std::ofstream(results, std::ios::app) << line << "\n";
            std::printf("%s  %.0f s\n", line.c_str(), took.count());
            std::fflush(stdout);
        }
    }
    return 0;
}

}  // namespace gt
