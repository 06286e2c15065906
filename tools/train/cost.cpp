#include "tools/train/cost.h"

#include "ggml-train/graph/graph.h"
#include "models/blocks.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gt {

// Bytes of one host's message, on average over the fragments.
static int64_t mean_message(const OptimOptions & optim, const std::vector<ParamView> & params) {
    const auto every = steps_per_round(optim), n_rounds = rounds_per_cycle(optim);
    int64_t    sum = 0;
    for (uint64_t i = 0; i < n_rounds; ++i) {
        sum += message_bytes(optim, params, (i + 1) * every - 1);
    }
    return sum / static_cast<int64_t>(n_rounds);
}

Cost estimate(
    const OptimOptions &           optim,
    const std::vector<ParamView> & params,
    const std::vector<HostEntry> & hosts,
    double                         compute_s
) {
    Cost cost;
    cost.every       = steps_per_round(optim);
    cost.round_bytes = mean_message(optim, params);
    const bool dense = is_dense(optim);  // exchanged in a butterfly
    const auto bytes = static_cast<double>(cost.round_bytes);
    // up once, down from everybody else; or shares of the others, and the means
    const double down = bytes * (dense ? 2.0 : static_cast<double>(hosts.size() - 1));
    for (const HostEntry & host : hosts) {
        const double seconds = 8e-6 * (bytes / host.up + down / host.down);
        if (seconds / static_cast<double>(cost.every) > cost.travel_s) {
            cost.travel_s = seconds / static_cast<double>(cost.every);
            cost.slowest  = host.name;
        }
    }
    cost.step_s             = compute_s + cost.travel_s;
    cost.overlapped_s       = std::max(compute_s, cost.travel_s);
    const double step       = optim.overlap ? cost.overlapped_s : cost.step_s;
    const double rounds_day = bytes > 0.0 ? 86400.0 / step / static_cast<double>(cost.every) : 0.0;
    cost.up_gb_day          = rounds_day * bytes / 1e9;
    cost.down_gb_day        = rounds_day * down / 1e9;
    return cost;
}

double gradient_seconds(
    const ModelFile & model, int64_t T, int64_t n, const DeviceSpec & device, int n_threads
) {
    const Backend backend(device, n_threads);
    const auto    graph_model = make_model(backend, model.config, true);
    for (const ModelTensor & tensor : model.tensors) {
        graph_model->weights().set(graph_model->weights().at(tensor.spec.name), tensor.data);
    }
    const ModelConfig & config = model.config;
    const bool          images = takes_images(config);
    StepGraph           graph(
                  backend, *graph_model,
                  {.B = 1, .T = T, .image_size = config.image_size, .channels = config.channels}
              );
    const int64_t pixels = config.image_size * config.image_size * config.channels;
    const Batch   batch{
          .n_samples = 1,
          .tokens    = std::vector<int32_t>(images ? 0 : T),
          .images    = std::vector<float>(images ? pixels : 0),
          .labels    = std::vector<int32_t>(images ? 1 : T)};
    graph.run(batch);
    const auto from = std::chrono::steady_clock::now();
    graph.run(batch);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
    return took.count() * static_cast<double>(n);
}

uint64_t fragments_within(
    OptimOptions optim, const std::vector<ParamView> & params, double compute_s, double bytes_per_s
) {
    const double most = bytes_per_s * compute_s * static_cast<double>(steps_per_round(optim));
    optim.fragments   = rounds_per_cycle(optim);
    while (static_cast<double>(mean_message(optim, params)) > most && optim.fragments < 512) {
        optim.fragments += (optim.fragments + 3) / 4;
    }
    return optim.fragments;
}

double expected_share(uint64_t fragments) {
    constexpr double kOfFour = 0.90, kOfFifteen = 0.81;
    const double     slope = (kOfFifteen - kOfFour) / std::log(15.0 / 4.0);
    return std::clamp(kOfFour + slope * std::log(static_cast<double>(fragments) / 4.0), 0.0, 1.0);
}

}  // namespace gt
