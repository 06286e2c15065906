#include "ggml-train/backend.h"

#include "ggml-train/cuda/table.h"
#include "ggml-train/fake-device.h"
#include "ggml-train/fused.h"
#include "ggml-train/ggml-device.h"

#include <algorithm>
#include <cstdio>
#include <ggml-alloc.h>
#include <ggml-cpu.h>
#include <ggml-impl.h>
#include <sstream>

namespace gt {

void Backend::PoolDeleter::operator()(struct ggml_threadpool * pool) const {
    ggml_threadpool_free(pool);
}

std::string DeviceSpec::name() const {
    static const char * const names[] = {"cpu", "fake", "cuda"};
    return format("%s:%d", names[static_cast<int>(kind)], index);
}

std::vector<DeviceSpec> parse_devices(const std::string & text) {
    using Kind = DeviceSpec::Kind;
    const Error wrong(
        "--device " + text +
        ": devices are cpu, cuda:0,cuda:1,... and, for tests, fake:N or fake:N:MB"
    );
    std::vector<DeviceSpec> devices;
    if (text == "cpu") {
        return {{}};
    }
    if (text.starts_with("fake")) {
        int n = 1, megabytes = 0, end = 0;
        if (std::sscanf(text.c_str(), "fake:%d:%d%n", &n, &megabytes, &end) < 2) {
            end = 4;
            std::sscanf(text.c_str(), "fake:%d%n", &n, &end);
        }
        if (static_cast<size_t>(end) != text.size() || n < 1 || megabytes < 0) {
            throw wrong;
        }
        for (int i = 0; i < n; ++i) {
            devices.push_back({Kind::fake, i, static_cast<size_t>(megabytes) * 1'000'000});
        }
        return devices;
    }
    std::stringstream list(text.ends_with(',') ? "" : text);
    for (std::string item; std::getline(list, item, ',');) {
        int index = 0, end = 4;
        std::sscanf(item.c_str(), "cuda:%d%n", &index, &end);
        if (!item.starts_with("cuda") || static_cast<size_t>(end) != item.size() || index < 0) {
            throw wrong;
        }
        devices.push_back({Kind::cuda, index});
    }
    if (devices.empty()) {
        throw wrong;
    }
    return devices;
}

static DeviceSpec only(const std::string & text) {
    const std::vector<DeviceSpec> devices = parse_devices(text);
    GT_CHECK(devices.size() == 1, "a backend is one device");
    return devices[0];
}

Backend::Backend(const std::string & device, int n_threads) : Backend(only(device), n_threads) {}

Backend::Backend(const DeviceSpec & spec, int n_threads) : n_threads_(n_threads) {
    switch (spec.kind) {
        case DeviceSpec::Kind::cpu: {
            backend_.reset(ggml_backend_cpu_init());
            ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
            params.poll = 0;  // between graphs the threads sleep: others need the cores
            pool_.reset(ggml_threadpool_new(&params));
            ggml_backend_cpu_set_threadpool(backend_.get(), pool_.get());
            ggml_backend_cpu_set_n_threads(backend_.get(), n_threads);
            break;
        }
        case DeviceSpec::Kind::fake:
            backend_.reset(make_fake_device(spec.index, n_threads, spec.limit));
            device_ = make_device(get(), emulated_kernels, spec.index);
            break;
        case DeviceSpec::Kind::cuda: {
            (void) cuda_kernels(spec.index);  // there is one
            backend_.reset(ggml_backend_init_by_name(format("CUDA%d", spec.index).c_str(), nullptr)
            );
            if (!backend_) {
                throw Error(spec.name() + ": ggml's CUDA backend cannot use it");
            }
            device_ = make_device(get(), cuda_kernels, spec.index);
            break;
        }
    }
}

Backend::~Backend() {
    device_.reset();
    backend_.reset();  // before the pool it uses
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

bool Backend::supports(const ggml_tensor * node) const {
    return device_ && fused_op(node) ? find_device_run(node) != nullptr
                                     : ggml_backend_supports_op(get(), node);
}

void Backend::check_support(ggml_cgraph * graph) const {
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        if (!supports(node)) {
            throw Error(format(
                "%s can't run op %s of tensor '%s'; try --portable or --device cpu",
                ggml_backend_name(get()), ggml_op_desc(node), node->name
            ));
        }
    }
}

void Backend::compute(ggml_cgraph * graph) const {
    device_ ? compute_on_device(graph) : compute_ggml(graph);
}

// Our nodes by our kernels, the stretches between them by ggml's backend. Each works on a stream of
// its own, which knows nothing of the other: both are waited for at every change.
void Backend::compute_on_device(ggml_cgraph * graph) const {
    const int n = ggml_graph_n_nodes(graph);
    for (int i = 0; i < n;) {
        bool ran = false;
        for (; i < n; ++i) {
            const ggml_tensor * node = ggml_graph_node(graph, i);
            if (const DeviceRun run = find_device_run(node)) {
                run(device_->kernels(), node, fused_params(node));
                ran = true;
            } else if (!ggml_op_is_empty(node->op)) {
                break;
            }
        }
        if (ran) {
            device_->wait();
        }
        const int begin = i;
        while (i < n && !find_device_run(ggml_graph_node(graph, i))) {
            ++i;
        }
        if (i > begin) {
            ggml_cgraph stretch = ggml_graph_view(graph, begin, i);
            compute_ggml(&stretch);
        }
    }
}

void Backend::compute_ggml(ggml_cgraph * graph) const {
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
