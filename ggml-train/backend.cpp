#include "ggml-train/backend.h"

#include "ggml-train/fake-device.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>

namespace gt {

void Backend::PoolDeleter::operator()(struct ggml_threadpool * pool) const {
    ggml_threadpool_free(pool);
}

Backend::Backend(const std::string & device, int n_threads) : n_threads_(n_threads) {
    if (device == "fake") {
        backend_.reset(make_fake_device(0, n_threads, 0));
    } else if (device == "cpu") {
        backend_.reset(ggml_backend_cpu_init());
        ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
        params.poll = 0;  // between graphs the threads sleep: others need the cores
        pool_.reset(ggml_threadpool_new(&params));
        ggml_backend_cpu_set_threadpool(backend_.get(), pool_.get());
        ggml_backend_cpu_set_n_threads(backend_.get(), n_threads);
    } else {
        throw Error("unknown device '" + device + "': devices are cpu and fake");
    }
}

Backend::~Backend() {
    backend_.reset();  // before the pool it uses
}

bool Backend::is_host() const {
    return ggml_backend_buft_is_host(ggml_backend_get_default_buffer_type(get()));
}

std::shared_ptr<void> Backend::access() const {
    return is_fake_device(get()) ? std::make_shared<FakeDeviceOpen>(get()) : nullptr;
}

ggml_backend_buffer_ptr Backend::allocate(ggml_context * ctx, const char * what) const {
    size_t bytes = 0;
    for (ggml_tensor * t = ggml_get_first_tensor(ctx); t; t = ggml_get_next_tensor(ctx, t)) {
        bytes += ggml_nbytes(t);
    }
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(ctx, get()));
    if (!buffer) {
        throw Error(format(
            "out of memory: %.1f MB for %s on %s; take a smaller model, batch or context",
            bytes / 1e6, what, ggml_backend_name(get())
        ));
    }
    ggml_backend_buffer_clear(buffer.get(), 0);
    return buffer;
}

ggml_gallocr_ptr Backend::plan(ggml_cgraph * graph) const {
    ggml_gallocr_ptr plan(ggml_gallocr_new(ggml_backend_get_default_buffer_type(get())));
    if (!ggml_gallocr_alloc_graph(plan.get(), graph)) {
        throw Error(format(
            "out of memory for activations on %s; take a smaller micro-batch or context, or "
            "--recompute",
            ggml_backend_name(get())
        ));
    }
    return plan;
}

void Backend::check_support(ggml_cgraph * graph) const {
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        if (!ggml_backend_supports_op(get(), node)) {
            throw Error(format(
                "%s can't run op %s of tensor '%s'; try --portable or --device cpu",
                ggml_backend_name(get()), ggml_op_desc(node), node->name
            ));
        }
    }
}

void Backend::compute(ggml_cgraph * graph) const {
    const ggml_status status = ggml_backend_graph_compute(get(), graph);
    if (status != GGML_STATUS_SUCCESS) {
        throw Error(format(
            "%s: computing a graph failed: %s", ggml_backend_name(get()),
            ggml_status_to_string(status)
        ));
    }
}

ggml_context_ptr make_context(size_t n_tensors, size_t graph_nodes) {
    const size_t graph = graph_nodes ? ggml_graph_overhead_custom(graph_nodes, false) : 0;
    return ggml_context_ptr(ggml_init(
        {.mem_size   = n_tensors * ggml_tensor_overhead() + graph,
         .mem_buffer = nullptr,
         .no_alloc   = true}
    ));
}

}  // namespace gt
