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

static void compute_ggml(const Backend & backend, ggml_cgraph * graph) {
    const ggml_status status = ggml_backend_graph_compute(backend.get(), graph);
    if (status != GGML_STATUS_SUCCESS) {
        throw Error(format(
            "%s: computing a graph failed: %s", ggml_backend_name(backend.get()),
            ggml_status_to_string(status)
        ));
    }
}

// Alternates between runs of our nodes and runs of ggml's. Both use streams of their own that are not
// ordered with each other, so each run ends before the next one starts.
static void compute_on_device(const Backend & backend, ggml_cgraph * graph) {
    Device &  device = *backend.device();
    const int n      = ggml_graph_n_nodes(graph);
    for (int i = 0; i < n;) {
        // our nodes, with views and other empty nodes between them
        bool ran = false;
        for (; i < n; ++i) {
            const ggml_tensor * node = ggml_graph_node(graph, i);
            if (const DeviceRun run = find_device_run(node)) {
                run(device.kernels(), node, fused_params(node));
                ran = true;
            } else if (!ggml_op_is_empty(node->op)) {
                break;
            }
        }
        if (ran) {
            device.wait();
        }
        // ggml's nodes, up to our next one
        const int begin = i;
        while (i < n && !find_device_run(ggml_graph_node(graph, i))) {
            ++i;
        }
        if (i > begin) {
            ggml_cgraph stretch = ggml_graph_view(graph, begin, i);
            compute_ggml(backend, &stretch);
        }
    }
}

void compute(const Backend & backend, ggml_cgraph * graph) {
    backend.device() ? compute_on_device(backend, graph) : compute_ggml(backend, graph);
}

}  // namespace gt
