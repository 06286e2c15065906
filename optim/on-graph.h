// optim/on-graph.h — demo with the gradients and the momentum on a device that runs ggml's ops only: what is
// sent and the new weights cross the bus, nothing else.
//
// The device folds the gradients and selects what is sent, up to rounding as decoupled.cpp does. Messages,
// means and update rules, on which hosts must agree bit for bit, are computed on the host.
#pragma once

#include "optim/device/dct-momentum.h"
#include "optim/tables.h"

namespace gt {

// The momentum must outlive the optimizer. REQUIRES: this rank owns all rows.
std::unique_ptr<Optimizer> make_demo_on_graph(
    OptimizerParts parts, const OptimOptions & options, Wire wire, bool sign, DctMomentum & momentum
);

// How demo cuts these tensors.
std::vector<DctChunks> dct_chunks(const OptimOptions & options, const Shapes & shapes);

}  // namespace gt
