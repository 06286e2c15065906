#include "tests/bench/converge-sim.h"

#include "models/init.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

namespace gt {

namespace {

struct Host {
    std::string                  name;
    std::shared_ptr<Transformer> model;
    std::unique_ptr<Optimizer>   optimizer;
    std::unique_ptr<StepGraph>   graph;
};

// Without local steps all hosts have equal weights (test-optim-hosts.cpp), so one model serves them all.
class Simulation {
public:
    Simulation(const SimTask & task, const SimRun & run)
        : task_(task), run_(run), backend_("cpu", run.n_threads), workers_(run.n_threads) {
        if (shares_of(run.optim) > 0) {
            shares_.emplace(run.optim, param_shapes(tensor_specs(task.config)));
        }
        for (int h = 0; h < run.n_hosts; ++h) {
            Host host{.name = format("host-%d", h)};
            host.model     = h == 0 || has_local_steps(run.optim) ? new_model() : hosts_[0].model;
            host.optimizer = make_optimizer(run.optim, host.model->weights().views(), workers_);
            host.graph     = std::make_unique<StepGraph>(
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

    void step(uint64_t step) {
        const float lr = run_.schedule.at(step);
        Round       round{.step = step, .has_mine = true};
        for (Host & host : hosts_) {
            const Batch batch = task_.train(step, host.name);
            host.graph->run(batch, 1.0f / static_cast<float>(batch.labels.size()));
            Bytes message = host.optimizer->prepare(step, lr, {.max_norm = run_.clip}).message;
            if (!message.empty()) {
                sent_ += message.size();
                round.messages.push_back({host.name, 1, std::move(message)});
            }
        }
        if (const int n = shares_of(run_.optim); n > 0 && !round.messages.empty()) {
            round = shares_->mean_round(round, n);
            for (const Message & mean : round.messages) {
                means_ += mean.bytes.size();
            }
        }
        travelling_.push_back(std::move(round));
        finish(step);
    }

    // Applies the rounds that have travelled long enough after this step.
    void finish(uint64_t step) {
        for (; !travelling_.empty() && travelling_.front().step + overlap_of(run_.optim) <= step;
             travelling_.pop_front()) {
            Round & round = travelling_.front();
            for (size_t h = 0; h < hosts_.size(); ++h) {
                if (h > 0 && !has_local_steps(run_.optim)) {
                    round.messages.clear();  // the first host has updated the shared weights
                }
                hosts_[h].optimizer->apply(round);
            }
        }
    }

    // Of the shared weights, as a run ends (Trainer::drain).
    std::string validate() {
        for (const StateTensor & tensor : hosts_[0].optimizer->state().tensors) {
            for (const Floats & own : tensor.derived) {
                own.write(tensor.values);
            }
        }
        return task_.validate(backend_, *hosts_[0].model);
    }

    // MB of one host's messages, and MB that it received: the messages of all others, or its share of them and the
    // means of the other shares.
    double sent() const { return 1e-6 * static_cast<double>(sent_) / n_hosts(); }
    double received() const {
        const double means = shares_of(run_.optim) > 0 ? 1e-6 * static_cast<double>(means_) : 0.0;
        return (n_hosts() - 1.0) * (means > 0.0 ? (sent() + means) / n_hosts() : sent());
    }

private:
    double n_hosts() const { return static_cast<double>(hosts_.size()); }

    std::shared_ptr<Transformer> new_model() {
        std::shared_ptr<Transformer> model = make_model(backend_, task_.config, true);
        for (const TensorSpec & spec : tensor_specs(task_.config)) {
            std::vector<float> values(spec.n_elements());
            init_tensor(spec, run_.seed, values);
            model->weights().set(model->weights().at(spec.name), values);
        }
        return model;
    }

    const SimTask &       task_;
    SimRun                run_;
    Backend               backend_;
    Workers               workers_;
    std::optional<Shares> shares_;
    std::vector<Host>     hosts_;
    std::deque<Round>     travelling_;
    uint64_t              sent_ = 0, means_ = 0;
};

}  // namespace

std::string simulate(const SimTask & task, const SimRun & run) {
    const auto from = std::chrono::steady_clock::now();
    Simulation simulation(task, run);
    for (int64_t step = 0; step < run.schedule.steps; ++step) {
        simulation.step(static_cast<uint64_t>(step));
    }
    simulation.finish(UINT64_MAX);
    const std::string                   result = simulation.validate();
    const std::chrono::duration<double> took   = std::chrono::steady_clock::now() - from;
    return result +
           format(
               ", \"sent_mb\": %.4f, \"received_mb\": %.4f, \"in_shares\": %s, \"seconds\": %.0f",
               simulation.sent(), simulation.received(),
               shares_of(run.optim) > 0 ? "true" : "false", took.count()
           );
}

}  // namespace gt
