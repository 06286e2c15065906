// tools/train/summary.h — the lines that a run prints before its first step.
#pragma once

#include "tools/train/rank.h"
#include "tools/train/session.h"

namespace gt {

// compute_s: duration of a gradient; only used with other hosts.
void print_summary(
    const RunPlan &     plan,
    const ModelConfig & config,
    const RankMemory &  memory,
    const HostState &   state,
    const Session &     session,
    double              compute_s
);

}  // namespace gt
