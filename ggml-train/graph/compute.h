// ggml-train/graph/compute.h — runs a graph on a backend: our nodes (fused.h) by our kernels, all others
// by ggml.
#pragma once

#include "ggml-train/device/backend.h"
#include "ggml-train/graph/ops.h"

namespace gt {

// The form of ops that suits a device best.
Form best_form(const DeviceSpec & device);

// The first op that the backend cannot run; null: it can run all.
const ggml_tensor * find_unsupported(const Backend & backend, ggml_cgraph * graph);

// Throws an Error that names the first op the backend cannot run; call once per graph.
void check_support(const Backend & backend, ggml_cgraph * graph);

void compute(const Backend & backend, ggml_cgraph * graph);

}  // namespace gt
