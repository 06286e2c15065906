#include "tools/train/memory-plan.h"

#include "ggml-train/shard/weights.h"
#include "models/base-weights.h"
#include "tools/train/rank.h"

#include <algorithm>

namespace gt {

namespace {

// Memory that is asked for, and not there.
class CountingDevice : public Device {
public:
    void   read(void *, const void *, size_t) override {}
    void   write(void *, const void *, size_t) override {}
    void * alloc(size_t bytes, const char *) override {
        n_bytes += bytes;
        return reinterpret_cast<void *>(n_bytes);  // no one looks there
    }
    void *                scratch(size_t bytes) override { return alloc(bytes, ""); }
    void                  wait() override {}
    std::shared_ptr<void> access() override { return nullptr; }
    const cuda::Kernels & kernels() const override { throw Error("nothing runs in a plan"); }

    size_t n_bytes = 0;
};

}  // namespace

static double bytes_of_state(Optimizer & optimizer) {
    double n = 0;
    for (const StateTensor & tensor : optimizer.state().tensors) {
        n += static_cast<double>(tensor.values.size_bytes());
    }
    return n;
}

// Counted on a model of one matrix of usual width.
static double state_per_weight(const OptimOptions & optim) {
    constexpr int64_t  kCols = 768, kRows = 16;
    std::vector<float> weight(kCols * kRows), grad(kCols * kRows);
    Workers            workers(1);
    const ParamView    param{
           .name = "w", .ne = {kCols, kRows, 1, 1}, .row_end = kRows, .weight = weight, .grad = grad};
    return bytes_of_state(*make_optimizer(optim, {param}, workers)) /
           static_cast<double>(weight.size());
}

void MemoryPlan::count_optimizer(const RunPlan & plan, const ModelConfig & config, Form form) {
    if (plan.optimizer_on_host && form != Form::fused) {
        return;
    }
    if (form != Form::device || !has_kernels(plan.optim)) {
        state_ = state_per_weight(plan.optim) * n_weights_;
        return;
    }
    CountingDevice         device;
    std::vector<ParamView> params = param_shapes(tensor_specs(config));
    for (ParamView & param : params) {
        const int64_t n = param.ne[0] * param.ne[1] * param.ne[2] * param.ne[3];
        param.weight    = {static_cast<float *>(device.alloc(1, "")), static_cast<size_t>(n)};
        param.grad      = param.weight;
        param.device    = &device;
    }
    device.n_bytes = 0;
    Workers    workers(1);
    const auto optimizer = make_optimizer(plan.optim, std::move(params), workers);
    state_               = bytes_of_state(*optimizer);
    working_             = static_cast<double>(device.n_bytes) - state_;
}

// The graphs are planned, not run.
MemoryPlan::PerBatch MemoryPlan::activations(
    const ModelConfig & whole, int64_t n_blocks, const RunPlan & plan, Form form
) {
    ModelConfig config = whole;
    config.n_layer     = n_blocks;
    const Backend backend("cpu", 1);
    const auto    model = make_model(backend, config, true);
    const auto    bytes = [&](int64_t B) {
        GraphOptions options = graph_options(plan, config, B, plan.T);
        options.form         = form;
        options.mixup        = plan.mixup;
        options.depth        = plan.depth;
        options.packed       = plan.packed;
        options.dropout      = plan.dropout;
        const auto of_graph  = [&] {
            return static_cast<double>(StepGraph(backend, *model, options).activation_bytes());
        };
        const double step = of_graph();
        options.goal      = GraphOptions::Goal::loss;
        // on a device a validation has memory of its own, on the CPU that of a step and some more
        return form == Form::fused ? 1.2 * step : step + of_graph();
    };
    const double one = bytes(1), each = bytes(2) - one;
    return {.fixed = std::max(0.0, one - each), .each = each};
}

MemoryPlan::MemoryPlan(const RunPlan & plan, const ModelConfig & config, Form form) {
    ModelConfig window = config;
    window.n_layer     = std::min(config.n_layer, kWindowBlocks);
    n_weights_         = static_cast<double>(n_params(config));
    n_window_          = static_cast<double>(n_params(window));
    n_ranks_           = plan.ranks;
    n_blocks_          = static_cast<double>(config.n_layer);
    count_optimizer(plan, config, form);
    if (const BaseWeights * base = config.lora.base.get()) {
        base_ = form == Form::fused ? static_cast<double>(base->n_bytes()) / n_ranks_
                                    : static_cast<double>(base->n_bytes_on_device());
    }
    first_ = activations(config, 1, plan, form);
    if (config.n_layer > 1) {  // an adapter's base has no more
        const auto two = activations(config, 2, plan, form);
        more_          = {.fixed = two.fixed - first_.fixed, .each = two.each - first_.each};
    }
    kept_ = sizeof(float) * static_cast<double>(config.n_embd * plan.T);
}

double MemoryPlan::need(const std::string & shard, int64_t micro) const {
    const double     cut    = shard == "none" ? 1.0 : n_ranks_;
    const double     blocks = n_blocks_ - 1.0;
    const bool       full   = shard == "full";
    const double     fixed  = first_.fixed + blocks * (full ? 0.0 : std::max(0.0, more_.fixed));
    const double     each   = first_.each + blocks * (full ? kept_ : more_.each);
    const double     held   = shard == "full" ? n_weights_ / n_ranks_ + n_window_ : n_weights_;
    constexpr double kValue = sizeof(float), kWeightAndGradient = 2.0 * kValue;
    return base_ + kWeightAndGradient * held + state_ / cut + working_ + fixed +
           each * static_cast<double>(micro);
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

constexpr double kUsable = 0.9;  // of a memory; the rest is for libraries and other programs

// Memory for one rank in bytes: on the host a part of all there is, the same each time; on a device what
// other programs leave free. 0: unknown.
static double memory_of(const RunPlan & plan) {
    const DeviceSpec spec = parse_devices(plan.device)[0];
    const Backend    backend(spec, 1);
    size_t           free = 0, total = 0;
    ggml_backend_dev_memory(ggml_backend_get_device(backend.get()), &free, &total);
    return backend.is_host() ? static_cast<double>(total) * kUsable / plan.ranks
                             : static_cast<double>(free) * kUsable;
}

// The smallest need that was found, and whether it fits.
static CardFit
try_shards(const RunPlan & plan, const ModelConfig & config, Form form, bool fixed, double memory) {
    const int64_t            most = divide_batch(plan.batch, plan.micro, plan.ranks);
    std::vector<std::string> shards{plan.shard};
    if (plan.shard == "auto") {
        shards = plan.ranks == 1 ? std::vector<std::string>{"none"}
                                 : std::vector<std::string>{"optimizer", "full"};
    }
    const MemoryPlan memory_plan(plan, config, form);
    CardFit          trial;
    for (const std::string & shard : shards) {
        MemoryFit & fit = trial.fit;
        fit             = {shard, most, plan.recompute};
        while (memory > 0 && !fixed && fit.micro > 1 && memory_plan.need(shard, fit.micro) > memory
        ) {
            fit.micro = divide_batch(plan.batch, fit.micro - 1, plan.ranks);
        }
        trial.need = memory_plan.need(shard, fit.micro);
        trial.fits = memory == 0 || trial.need <= memory;
        if (trial.fits) {
            break;
        }
    }
    return trial;
}

static CardFit
try_memory(const RunPlan & plan, const ModelConfig & config, Form form, bool fixed, double memory) {
    const CardFit trial = try_shards(plan, config, form, fixed, memory);
    if (trial.fits || plan.recompute) {
        return trial;
    }
    RunPlan again   = plan;
    again.recompute = true;
    return try_shards(again, config, form, fixed, memory);
}

CardFit fit_card(const RunPlan & plan, const ModelConfig & config, double bytes) {
    return try_memory(plan, config, Form::device, false, kUsable * bytes);
}

MemoryFit fit_memory(const RunPlan & plan, const ModelConfig & config, bool fixed) {
    if (fixed && plan.micro < plan.batch && plan.batch % plan.micro != 0) {
        throw UsageError(format(
            "--micro %lld does not divide the batch of %lld samples",
            static_cast<long long>(plan.micro), static_cast<long long>(plan.batch)
        ));
    }
    const double  memory = memory_of(plan);
    const CardFit trial  = try_memory(plan, config, form_of(plan), fixed, memory);
    if (!trial.fits) {
        const auto text = [](double bytes) { return bytes_text(static_cast<uint64_t>(bytes)); };
        std::fprintf(
            stderr, "WARNING: this run needs about %s per rank, and there are %s: use %s%s\n",
            text(trial.need).c_str(), text(memory).c_str(),
            fixed && plan.micro > 1 ? "a smaller --micro" : "a shorter --context",
            config.lora.enabled() || config.image_size > 0 ? ""
                                                           : ", or train an adapter (--lora 16)"
        );
    }
    return trial.fit;
}

}  // namespace gt
