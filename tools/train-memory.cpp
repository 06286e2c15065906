#include "tools/train-memory.h"

#include "tools/train-rank.h"

#include <algorithm>

namespace gt {

// Floats that the optimizer keeps per weight: counted on a model of one small matrix.
static double state_per_weight(const OptimOptions & optim) {
    std::vector<float> weight(256), grad(256);
    Workers            workers(1);
    const ParamView    param{
           .name = "w", .ne = {16, 16, 1, 1}, .row_end = 16, .weight = weight, .grad = grad};
    double n = 0;
    for (const StateTensor & tensor : make_optimizer(optim, {param}, workers)->state().tensors) {
        n += static_cast<double>(tensor.values.size());
    }
    return n / static_cast<double>(weight.size());
}

// Activations of one sample; the graph is planned, not run.
static double
measure(ModelConfig config, int64_t n_blocks, const TrainFlags & f, const TrainTask & t) {
    config.n_layer = n_blocks;
    const Backend backend("cpu", 1);
    const auto    model = make_model(backend, config, true);
    StepGraph     graph(
            backend, *model,
            {.B          = 1,
             .T          = t.T,
             .image_size = config.image_size,
             .channels   = config.channels,
             .form       = form_of(f),
             .recompute  = f.recompute ? Recompute::all : Recompute::cheap,
             .mixup      = t.mixup,
             .depth      = t.depth}
        );
    return static_cast<double>(graph.activation_bytes());
}

MemoryPlan::MemoryPlan(const TrainFlags & f, const TrainTask & task) {
    const ModelConfig & config = task.model.config;
    ModelConfig         window = config;
    window.n_layer             = std::min(config.n_layer, kWindowBlocks);
    n_weights_                 = static_cast<double>(n_params(config));
    n_window_                  = static_cast<double>(n_params(window));
    n_ranks_                   = f.ranks;
    n_blocks_                  = static_cast<double>(config.n_layer);
    state_                     = state_per_weight(f.optim);
    first_                     = measure(config, 1, f, task);
    more_                      = measure(config, 2, f, task) - first_;
    kept_                      = 4.0 * static_cast<double>(config.n_embd * task.T);
}

double MemoryPlan::need(const std::string & shard, int64_t micro) const {
    const double cut    = shard == "none" ? 1.0 : n_ranks_;
    const double blocks = n_blocks_ - 1.0;
    const double each   = first_ + blocks * (shard == "full" ? kept_ : more_);
    const double fixed =
        shard == "full" ? 8.0 * (n_weights_ / n_ranks_ + n_window_) : 8.0 * n_weights_;
    constexpr double kEvaluation = 1.2;  // its graph has activations of its own
    return fixed + 4.0 * state_ * n_weights_ / cut +
           kEvaluation * each * static_cast<double>(micro);
}

int64_t divide_batch(int64_t batch, int64_t most, int n_ranks) {
    int64_t best = 1, best_samples = batch + 1;
    for (int64_t micro = 1; micro <= std::min(batch, most); ++micro) {
        const int64_t samples = (batch / micro + n_ranks - 1) / n_ranks * micro;  // of one rank
        if (batch % micro == 0 && samples <= best_samples) {
            best         = micro;
            best_samples = samples;
        }
    }
    return best;
}

// What a rank's device has, as a machine says the same each time; 0: no limit is known.
static double memory_of(const TrainFlags & f) {
    const DeviceSpec spec = parse_devices(f.device)[0];
    const Backend    backend(spec, 1);
    size_t           free = 0, total = 0;
    ggml_backend_dev_memory(ggml_backend_get_device(backend.get()), &free, &total);
    const bool shared =
        spec.kind == DeviceSpec::Kind::cpu;  // by all ranks, and with other programs
    return static_cast<double>(total) * 0.9 / (shared ? f.ranks : 1);
}

void fit_memory(TrainFlags & f, const TrainTask & task, bool given) {
    const int64_t            most = divide_batch(f.batch, f.micro ? f.micro : f.batch, f.ranks);
    std::vector<std::string> shards{f.shard};
    if (f.shard == "auto") {
        shards = f.ranks == 1 ? std::vector<std::string>{"none"}
                              : std::vector<std::string>{"optimizer", "full"};
    }
    const MemoryPlan plan(f, task);
    const double     memory = memory_of(f);
    for (const std::string & shard : shards) {
        f.shard = shard;
        f.micro = most;
        while (memory > 0 && !given && f.micro > 1 && plan.need(shard, f.micro) > memory) {
            f.micro = divide_batch(f.batch, f.micro - 1, f.ranks);
        }
        if (memory == 0 || plan.need(shard, f.micro) <= memory) {
            return;
        }
    }
}

}  // namespace gt
