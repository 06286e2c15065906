#include "tools/train/cost.h"

#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "tools/train/rank.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gt {

// Cloudflare R2, November 2026; it does not charge for traffic.
constexpr double kDollarsPerWrite = 4.5e-6, kDollarsPerRead = 0.36e-6, kDollarsPerGbMonth = 0.015;

// Messages since the last checkpoint but one, and three checkpoints (comm/protocol.md, retention). The
// shared state is the weights and a momentum.
static double disk_bytes(const std::vector<ParamView> & params, double bytes_per_round) {
    double state = 0.0;
    for (const ParamView & param : params) {
        state += 8.0 * static_cast<double>(shape_of(param).size());
    }
    return 2.25 * std::max(100.0 * bytes_per_round, 10.0 * state) + 3.0 * state;
}

// Of a round that lasts `seconds`, `waited` of them waiting for its commit. Polling starts with short
// pauses that grow to 2 s; the sequencer looks every 0.3 s in the last fifth, and lists every 10 s.
static void count_requests(Cost & cost, double n, double seconds, double waited) {
    const double per_day = 86400.0 / seconds;
    cost.writes_day      = per_day * (n + 1.0 + seconds / 10.0);
    cost.reads_day = per_day * n * ((n - 1.0) + 8.0 + waited / 2.0 + 0.2 * seconds / 0.3 / 2.0);
    cost.dollars_month =
        30.0 * (cost.writes_day * kDollarsPerWrite + cost.reads_day * kDollarsPerRead) +
        cost.disk_gb * kDollarsPerGbMonth;
}

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
    const Hosts &                  run,
    double                         compute_s
) {
    Cost cost;
    cost.every       = steps_per_round(optim);
    cost.round_bytes = mean_message(optim, params);
    // up once, down from everybody else; or in shares, with a mean of one and those of the others
    const auto   bytes        = static_cast<double>(cost.round_bytes);
    const auto   n            = static_cast<double>(run.hosts.size());
    const bool   is_in_shares = default_shares(optim, run.hosts.size()) > 0;
    const double means        = is_in_shares ? bytes * mean_ratio(optim, run.hosts.size()) : 0.0;
    const double down         = (n - 1.0) * (is_in_shares ? (bytes + means) / n : bytes);
    const double sent         = bytes + means / n;
    // a host that serves its own messages, or the hub, sends what the others fetch
    const double own = run.direct ? down : sent;
    for (const HostEntry & host : run.hosts) {
        const bool   is_hub  = &host == run.hub() && !run.direct;
        const double up      = is_hub ? (n - 1.0) * down : own;
        const double in      = is_hub ? (n - 1.0) * sent : down;
        const double seconds = 8e-6 * (up / host.up + in / host.down);
        if (seconds / static_cast<double>(cost.every) > cost.travel_s) {
            cost.travel_s = seconds / static_cast<double>(cost.every);
            cost.slowest  = host.name;
        }
    }
    cost.step_s       = compute_s + cost.travel_s;
    cost.overlapped_s = std::max(compute_s, cost.travel_s);
    const double hidden =
        compute_s * static_cast<double>(overlap_of(optim)) / static_cast<double>(cost.every);
    const double step       = std::max(cost.overlapped_s, cost.step_s - hidden);
    const double rounds_day = bytes > 0.0 ? 86400.0 / step / static_cast<double>(cost.every) : 0.0;
    cost.up_gb_day          = rounds_day * own / 1e9;
    cost.down_gb_day        = rounds_day * down / 1e9;
    cost.hub_gb_day         = run.hub() && !run.direct ? rounds_day * (n - 1.0) * down / 1e9 : 0.0;
    cost.disk_gb            = bytes > 0.0 ? disk_bytes(params, n * bytes) / 1e9 : 0.0;
    if (run.store.starts_with("s3://") && bytes > 0.0) {
        const double round = step * static_cast<double>(cost.every);
        count_requests(cost, n, round, std::max(0.0, step - compute_s));
    }
    return cost;
}

Hosts hosts_there(const Hosts & all, const std::set<std::string> & names) {
    Hosts there = all;
    there.hosts.clear();
    for (const std::string & name : names) {
        const HostEntry * known = all.find(name);
        HostEntry         line  = known ? *known : HostEntry{.name = name};
        line.up                 = line.up > 0 ? line.up : 20;  // Mbit/s of a typical home
        line.down               = line.down > 0 ? line.down : 100;
        if (known != all.hub()) {
            line.address.clear();  // the first address is the hub's
        }
        there.hosts.push_back(line);
    }
    return there;
}

double gradient_seconds(const ModelFile & model, int64_t T, const TrainFlags & run) {
    const Backend backend(parse_devices(run.device)[0], run.threads);
    const auto    graph_model = make_model(backend, model.config, true);
    for (const ModelTensor & tensor : model.tensors) {
        graph_model->weights().set(graph_model->weights().at(tensor.spec.name), tensor.data);
    }
    const ModelConfig & config = model.config;
    const bool          images = takes_images(config);
    StepGraph           graph(backend, *graph_model, graph_options(run, config, 1, T));
    const int64_t       pixels = config.width() * config.image_size * config.channels;
    const Batch         batch{
                .n_samples = 1,
                .tokens    = std::vector<int32_t>(images ? 0 : T),
                .images    = std::vector<float>(images ? pixels : 0),
                .labels    = std::vector<int32_t>(images ? 1 : T)};
    graph.run(batch);
    const auto from = std::chrono::steady_clock::now();
    graph.run(batch);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
    return took.count() * static_cast<double>(run.batch);
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
    constexpr double kOfSix = 0.98, kOfFourteen = 0.91;
    const double     slope = (kOfFourteen - kOfSix) / std::log(14.0 / 6.0);
    return std::clamp(kOfSix + slope * std::log(static_cast<double>(fragments) / 6.0), 0.0, 1.0);
}

}  // namespace gt
