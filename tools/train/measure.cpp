#include "tools/train/measure.h"

#include "comm/rounds/peers-self.h"
#include "tools/train/run-devices.h"
#include "tools/train/settle.h"

#include <algorithm>
#include <chrono>

namespace gt {

double
measure_gradient(const RunPlan & plan, TrainRank & rank, Data & data, LocalGroup & ranks, int n) {
    std::chrono::steady_clock::time_point from;
    for (int i = -1; i < n; ++i) {  // the first one warms up
        if (i == 0) {
            from = std::chrono::steady_clock::now();
        }
        rank.graph().run(from_first(ranks, [&] { return data.train(i + 1, plan.micro); }));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
    const int64_t n_turns = (plan.batch / plan.micro + ranks.size() - 1) / ranks.size();
    return took.count() / n * static_cast<double>(n_turns);
}

RunPlan plan_hours(const RunPlan & plan, const ModelFile & model, Data & data) {
    constexpr int kTimed = 3;
    const auto    peers  = make_self_peers("");
    double        each   = 0.0;
    run_devices(plan.device, plan.ranks, [&](LocalGroup & ranks) {
        TrainRank    rank(plan, model, data, ranks, *peers);
        const double seconds = measure_gradient(plan, rank, data, ranks, kTimed);
        on_first(ranks, [&] { each = seconds; });
    });
    const auto steps = std::max<int64_t>(1, static_cast<int64_t>(plan.hours * 3600.0 / each));
    std::printf(
        "%.2g hours: about %lld steps of %.2f s\n", plan.hours, static_cast<long long>(steps), each
    );
    return with_steps(plan, steps);
}

}  // namespace gt
