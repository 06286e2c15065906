// tools/train/summary.h — the lines that a run prints before its first step.
#pragma once

#include "tools/train/rank.h"
#include "tools/train/train-flags.h"

namespace gt {

void print_summary(
    const RunPlan &     plan,
    const ModelConfig & config,
    const RankMemory &  memory,
    const HostState &   state
);

}  // namespace gt
