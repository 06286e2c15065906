#include "tools/train/summary.h"

#include "ggml-train/base/text.h"

namespace gt {

static double mb(size_t bytes) {
    return static_cast<double>(bytes) / 1e6;
}

void print_summary(
    const RunPlan &     plan,
    const ModelConfig & config,
    const RankMemory &  memory,
    const Session &     session,
    double              compute_s
) {
    constexpr const char * kForms[] = {"portable ops", "fused ops", "device ops"};
    const double           count    = static_cast<double>(plan.batch * plan.n_per_sample);
    std::printf("model    %s\n", describe(config).c_str());
    std::printf(
        "data     %s %s per step, %lld steps\n", count_text(count).c_str(), plan.unit.c_str(),
        static_cast<long long>(plan.steps)
    );
    std::printf(
        "memory   %sweights and gradients %.0f MB, optimizer %.0f MB, %sactivations %.0f MB\n",
        plan.ranks > 1 ? "per rank: " : "", mb(memory.weights), mb(memory.state),
        memory.window ? format("streamed blocks %.0f MB, ", mb(memory.window)).c_str() : "",
        mb(memory.activations)
    );
    std::printf(
        "compute  %s, %d threads, %s%s\n", plan.device.c_str(), plan.threads,
        kForms[static_cast<int>(form_of(plan))], plan.recompute ? ", recomputed activations" : ""
    );
    if (!session.alone()) {
        std::printf("cost     %s\n", session.cost(plan.optim, config, compute_s).c_str());
    }
    std::printf("run      %s\n", plan.out.c_str());
    std::fflush(stdout);
}

}  // namespace gt
