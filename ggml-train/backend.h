// ggml-train/backend.h — the device of one rank: its threads, its buffers, its graph runs.
// The sole owner of ggml's handles.
#pragma once

#include "ggml-train/device.h"

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

namespace gt {

// The device of one rank.
struct DeviceSpec {
    enum class Kind { cpu, fake, cuda } kind = Kind::cpu;
    int    index                             = 0;
    size_t limit                             = 0;  // fake: bytes of memory; 0: no limit

    std::string name() const;
};

// What --device says, one entry per rank: "cpu"; "fake:N" or "fake:N:MB", N test devices with memory
// of their own (fake-device.h), "fake" being one; "cuda:I,cuda:J", GPUs, "cuda" being the first.
std::vector<DeviceSpec> parse_devices(const std::string & text);

class Backend {
public:
    Backend(const DeviceSpec & device, int n_threads);
    Backend(const std::string & device, int n_threads);  // REQUIRES: it names one device
    ~Backend();
    Backend(const Backend &)             = delete;
    Backend & operator=(const Backend &) = delete;

    ggml_backend_t get() const { return backend_.get(); }
    bool           is_host() const { return !device_; }      // its memory is ours to read
    Device *       device() const { return device_.get(); }  // null: the host's memory
    int            n_threads() const { return n_threads_; }

    // While it lives, this process may pass pointers into the device's memory to LocalGroup.
    std::shared_ptr<void> access() const;

    // Memory for all tensors of a context, zeroed. An Error says how much was asked for.
    ggml_backend_buffer_ptr allocate(ggml_context * ctx, const char * what) const;

    // Places the intermediate tensors of graphs, reusing memory. Several share it: they must run one
    // after another, and leave nothing there for the next.
    ggml_gallocr_ptr plan(std::vector<ggml_cgraph *> graphs) const;

    // An op the device can't run is an Error that names it; call once per graph.
    void check_support(ggml_cgraph * graph) const;

    void compute(ggml_cgraph * graph) const;

private:
    bool supports(const ggml_tensor * node) const;
    void compute_ggml(ggml_cgraph * graph) const;
    void compute_on_device(ggml_cgraph * graph) const;

    struct PoolDeleter {
        void operator()(struct ggml_threadpool * pool) const;
    };
    int                                                  n_threads_;
    std::unique_ptr<struct ggml_threadpool, PoolDeleter> pool_;
    ggml_backend_ptr                                     backend_;
    std::unique_ptr<Device>                              device_;
};

// An empty context for tensor descriptions: no data lives in it.
ggml_context_ptr make_context(size_t n_tensors, size_t graph_nodes = 0);

}  // namespace gt
