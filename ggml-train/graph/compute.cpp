#include "ggml-train/graph/compute.h"

#include <ggml-impl.h>

namespace gt {

Form best_form(const DeviceSpec & device) {
    const ggml_backend_dev_t dev = find_device(device);
    return is_host(dev) ? Form::fused : find_kernels(dev) ? Form::device : Form::portable;
}

static bool supports(const Backend & backend, const ggml_tensor * node) {
    return backend.device() && fused_op(node) ? find_device_run(node) != nullptr
                                              : ggml_backend_supports_op(backend.get(), node);
}

const ggml_tensor * find_unsupported(const Backend & backend, ggml_cgraph * graph) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        if (!supports(backend, node)) {
            return node;
        }
    }
    return nullptr;
}

void check_support(const Backend & backend, ggml_cgraph * graph) {
    if (const ggml_tensor * node = find_unsupported(backend, graph)) {
        throw Error(format(
            "%s can't run op %s of tensor '%s'; try --portable or --device cpu",
            ggml_backend_name(backend.get()), ggml_op_desc(node), node->name
        ));
    }
}

static void check_status(const Backend & backend, ggml_status status) {
    if (status != GGML_STATUS_SUCCESS) {
        throw Error(format(
            "%s: computing a graph failed: %s", ggml_backend_name(backend.get()),
            ggml_status_to_string(status)
        ));
    }
}

// Alternates between runs of our nodes and runs of ggml's. Each run is on the other stream than the one before it,
// and ordered behind it by an event: the host waits once, at the end.
static void compute_on_device(const Backend & backend, ggml_cgraph * graph) {
    Device &  device = *backend.device();
    const int n      = ggml_graph_n_nodes(graph);
    bool      ours   = true;  // who has the newest run
    for (int i = 0; i < n;) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        if (const DeviceRun run = find_device_run(node)) {
            if (!ours) {
                device.kernels_follow_ggml();
            }
            ours = true;
            run(device.kernels(), node, fused_params(node));
            ++i;
            continue;
        }
        if (ggml_op_is_empty(node->op)) {
            ++i;
            continue;
        }
        // ggml's nodes, up to our next one
        const int begin = i;
        while (i < n && !find_device_run(ggml_graph_node(graph, i))) {
            ++i;
        }
        device.ggml_follows_kernels();
        ours                = false;
        ggml_cgraph stretch = ggml_graph_view(graph, begin, i);
        check_status(backend, ggml_backend_graph_compute_async(backend.get(), &stretch));
    }
    if (!ours) {
        device.kernels_follow_ggml();
    }
    device.wait();
}

void compute(const Backend & backend, ggml_cgraph * graph) {
    if (backend.device()) {
        compute_on_device(backend, graph);
    } else {
        check_status(backend, ggml_backend_graph_compute(backend.get(), graph));
    }
}

}  // namespace gt
