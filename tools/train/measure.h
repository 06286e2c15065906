// tools/train/measure.h — how long a gradient takes on this host.
#pragma once

#include "models/model-file.h"
#include "tools/train/rank.h"

namespace gt {

// Collective. Seconds for the gradient of one step: n micro-batches are timed and discarded.
double
measure_gradient(const RunPlan & plan, TrainRank & rank, Data & data, LocalGroup & ranks, int n);

// The plan with as many steps as fit --hours on this host.
RunPlan plan_hours(const RunPlan & plan, const ModelFile & model, Data & data);

}  // namespace gt
