#include "tools/train/cost.h"

#include <algorithm>
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

Cost estimate(
    const OptimOptions &           optim,
    const std::vector<ParamView> & params,
    const Hosts &                  run,
    double                         compute_s
) {
    Cost cost;
    cost.every          = steps_per_round(optim);
    const auto n_rounds = static_cast<int64_t>(rounds_per_cycle(optim));
    for (int64_t i = 0; i < n_rounds; ++i) {
        cost.round_bytes += message_bytes(optim, params, (i + 1) * cost.every - 1);
    }
    cost.round_bytes /= n_rounds;
    const bool dense = is_dense(optim);  // exchanged in a butterfly
    const auto bytes = static_cast<double>(cost.round_bytes);
    // up once, down from everybody else; or shares of the others, and the means
    const auto   n    = static_cast<double>(run.hosts.size());
    const double down = bytes * (dense ? 2.0 : n - 1.0);
    // a host that serves its own messages, or the hub, sends what the others fetch
    const double own = run.direct ? down : bytes;
    for (const HostEntry & host : run.hosts) {
        const bool   is_hub  = &host == run.hub() && !run.direct;
        const double up      = is_hub ? (n - 1.0) * down : own;
        const double in      = is_hub ? (n - 1.0) * bytes : down;
        const double seconds = 8e-6 * (up / host.up + in / host.down);
        if (seconds / static_cast<double>(cost.every) > cost.travel_s) {
            cost.travel_s = seconds / static_cast<double>(cost.every);
            cost.slowest  = host.name;
        }
    }
    cost.step_s             = compute_s + cost.travel_s;
    cost.overlapped_s       = std::max(compute_s, cost.travel_s);
    const double step       = optim.overlap ? cost.overlapped_s : cost.step_s;
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

double expected_share(uint64_t fragments) {
    constexpr double kOfFour = 0.90, kOfFifteen = 0.81;
    const double     slope = (kOfFifteen - kOfFour) / std::log(15.0 / 4.0);
    return std::clamp(kOfFour + slope * std::log(static_cast<double>(fragments) / 4.0), 0.0, 1.0);
}

}  // namespace gt
