#include "tools/train/summary.h"

#include "ggml-train/base/plural.h"
#include "ggml-train/base/text.h"
#include "models/base-weights.h"

#include <algorithm>
#include <filesystem>

namespace gt {

static double mb(size_t bytes) {
    return static_cast<double>(bytes) / 1e6;
}

// The newest checkpoints, and the one that is being written.
static std::string disk_text(const RunPlan & plan, const HostState & state) {
    uint64_t each = 0;
    for (const auto * tensors : {&state.weights, &state.tensors}) {
        for (const HostTensor & tensor : *tensors) {
            each += sizeof(float) * tensor.size();
        }
    }
    const uint64_t  all = each * static_cast<uint64_t>(plan.keep + 1);
    std::error_code none;
    const auto      free = std::filesystem::space(plan.out, none).available;
    const bool      fits = none || free >= all;
    return "checkpoints of " + bytes_text(each) + ", up to " + bytes_text(all) + " on disk" +
           (none ? "" : (fits ? ", " : ": NOT ENOUGH SPACE, ") + bytes_text(free) + " free");
}

// The model that an adapter is for.
static std::string base_text(const RunPlan & plan, const ModelConfig & config) {
    const BaseWeights * base = config.lora.base.get();
    if (!base) {
        return "";
    }
    return form_of(plan) == Form::fused
               ? format("model %.0f MB (its file, mapped), ", mb(base->n_bytes()))
               : format("model %.0f MB (copied to the device), ", mb(base->n_bytes_on_device()));
}

void print_summary(
    const RunPlan &     plan,
    const ModelConfig & config,
    const RankMemory &  memory,
    const HostState &   state
) {
    constexpr const char * kForms[] = {"portable ops", "fused ops", "device ops"};
    const double           count    = static_cast<double>(plan.batch * plan.n_per_sample);
    std::printf("model    %s\n", describe(config).c_str());
    std::printf("data     %s\n", plan.data_text.c_str());
    std::printf(
        "length   %s of %s %s, %.3g passes\n", plural(plan.steps, "step").c_str(),
        count_text(count).c_str(), plan.unit.c_str(),
        static_cast<double>(plan.steps * plan.batch) /
            static_cast<double>(std::max<int64_t>(1, plan.n_samples))
    );
    std::printf("rate     %.2e, %s\n", plan.schedule.lr, plan.lr_reason.c_str());
    std::printf(
        "memory   %s%sweights and gradients %.0f MB, optimizer %.0f MB%s, %sactivations %.0f MB\n",
        plan.ranks > 1 ? "per rank: " : "", base_text(plan, config).c_str(), mb(memory.weights),
        mb(memory.state), plan.optimizer_on_host ? " on the host" : "",
        memory.window ? format("streamed blocks %.0f MB, ", mb(memory.window)).c_str() : "",
        mb(memory.activations)
    );
    std::printf(
        "compute  %s, %s, %s, %s%s%s\n", plan.device.c_str(),
        plural(plan.threads, "thread").c_str(), kForms[static_cast<int>(form_of(plan))],
        plan.compute.c_str(), memory.momentum_graph ? ", momentum on the device" : "",
        plan.chose_recompute ? ", recomputed activations (they would not fit)"
        : plan.recompute     ? ", recomputed activations"
                             : ""
    );
    std::printf("run      %s: %s\n", plan.out.c_str(), disk_text(plan, state).c_str());
    std::fflush(stdout);
}

}  // namespace gt
