#include "tools/train/cost.h"

#include <algorithm>
#include <cmath>

namespace gt {

Cost estimate(
    const OptimOptions &           optim,
    const std::vector<ParamView> & params,
    const std::vector<HostEntry> & hosts,
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

double expected_share(uint64_t fragments) {
    constexpr double kOfFour = 0.90, kOfFifteen = 0.81;
    const double     slope = (kOfFifteen - kOfFour) / std::log(15.0 / 4.0);
    return std::clamp(kOfFour + slope * std::log(static_cast<double>(fragments) / 4.0), 0.0, 1.0);
}

}  // namespace gt
