#include "ggml-train/device/backend.h"

#include "ggml-train/cuda/table.h"
#include "ggml-train/device/device-ggml.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ggml-alloc.h>
#include <ggml-cpu.h>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

namespace gt {

void Backend::PoolDeleter::operator()(struct ggml_threadpool * pool) const {
    ggml_threadpool_free(pool);
}

static DeviceSpec only(const std::string & text) {
    const std::vector<DeviceSpec> devices = parse_devices(text);
    GT_CHECK(devices.size() == 1, "a backend is one device");
    return devices[0];
}

static std::atomic<Products> g_products{Products::f32};

void allow_products(Products products) {
    g_products = products;
}

// ggml's backends read these when a device is first used. A user's own values stay.
static void ask_for_products() {
    if (g_products != Products::half) {
        for (const char * name :
             {"GGML_VK_DISABLE_F16", "GGML_VK_DISABLE_COOPMAT", "GGML_VK_DISABLE_COOPMAT2"}) {
            ::setenv(name, "1", 0);
        }
    }
    if (g_products == Products::f32) {
        ::setenv("NVIDIA_TF32_OVERRIDE", "0", 0);  // cuBLAS
    }
}

Backend::Backend(const std::string & device, int n_threads) : Backend(only(device), n_threads) {}

Backend::Backend(const DeviceSpec & spec, int n_threads) : n_threads_(n_threads) {
    const ggml_backend_dev_t dev    = find_device(spec);
    const char *             params = spec.params.empty() ? nullptr : spec.params.c_str();
    static std::once_flag    asked;  // ranks make theirs at the same time
    std::call_once(asked, ask_for_products);
    backend_.reset(ggml_backend_dev_init(dev, params));
    if (!backend_) {
        throw Error(spec.name() + ": ggml's backend cannot use this device; use --device cpu");
    }
    set_threads(ggml_backend_dev_backend_reg(dev));
    if (const cuda::Kernels * kernels = find_kernels(dev)) {
        device_ = make_device(get(), *kernels, spec.index);
        kernels->use_tf32(g_products != Products::f32);
    }
}

void Backend::set_threads(ggml_backend_reg_t reg) {
    const auto set = reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads")
    );
    if (set) {
        set(get(), n_threads_);
    }
    if (ggml_backend_is_cpu(get())) {
        ggml_threadpool_params params = ggml_threadpool_params_default(n_threads_);
        params.poll                   = 0;  // sleep between graphs: other threads need the cores
        pool_.reset(ggml_threadpool_new(&params));
        ggml_backend_cpu_set_threadpool(get(), pool_.get());
    }
}

Backend::~Backend() {
    device_.reset();
    backend_.reset();  // before the pool it uses
}

bool Backend::is_host() const {
    return ggml_backend_buft_is_host(ggml_backend_get_default_buffer_type(get()));
}

ggml_backend_buffer_ptr Backend::allocate(ggml_context * ctx, const char * what) const {
    size_t bytes = 0;
    for (ggml_tensor * t = ggml_get_first_tensor(ctx); t; t = ggml_get_next_tensor(ctx, t)) {
        bytes += ggml_nbytes(t);
    }
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(ctx, get()));
    if (!buffer) {
        throw Error(format(
            "out of memory: %.1f MB for %s on %s; take a smaller --micro, more --ranks with "
            "--shard full, or a smaller model",
            bytes / 1e6, what, ggml_backend_name(get())
        ));
    }
    ggml_backend_buffer_clear(buffer.get(), 0);
    return buffer;
}

ggml_gallocr_ptr Backend::plan(std::vector<ggml_cgraph *> graphs) const {
    const auto buft = ggml_backend_get_default_buffer_type(get());
    const auto size = [&](ggml_cgraph * graph) {
        const ggml_gallocr_ptr measure(ggml_gallocr_new(buft));
        size_t                 bytes = 0;
        ggml_gallocr_reserve_n_size(measure.get(), graph, nullptr, nullptr, &bytes);
        return bytes;
    };
    // the largest first: the memory made for it stays where it is
    std::sort(graphs.begin(), graphs.end(), [&](auto * a, auto * b) { return size(a) > size(b); });
    ggml_gallocr_ptr plan(ggml_gallocr_new(buft));
    for (ggml_cgraph * graph : graphs) {
        if (!ggml_gallocr_alloc_graph(plan.get(), graph)) {
            throw Error(format(
                "out of memory: %.1f MB for activations on %s; take a smaller --micro or "
                "--context, "
                "or --recompute",
                static_cast<double>(size(graph)) / 1e6, ggml_backend_name(get())
            ));
        }
    }
    return plan;
}

void Backend::release(ggml_cgraph * graph) const {
    if (!is_host()) {
        return;
    }
    std::set<ggml_backend_buffer_t> buffers;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const ggml_backend_buffer_t buffer = ggml_graph_node(graph, i)->buffer;
        if (buffer && ggml_backend_buffer_get_usage(buffer) == GGML_BACKEND_BUFFER_USAGE_COMPUTE) {
            buffers.insert(buffer);
        }
    }
    for (ggml_backend_buffer_t buffer : buffers) {
        const auto page  = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
        const auto base  = reinterpret_cast<uintptr_t>(ggml_backend_buffer_get_base(buffer));
        const auto begin = (base + page - 1) / page * page;
        const auto end   = (base + ggml_backend_buffer_get_size(buffer)) / page * page;
        if (end > begin) {
            ::madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
        }
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
