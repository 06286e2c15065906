// ggml-train/device/backend.h — the device of one rank: its threads and its buffers. The sole owner of
// ggml's handles. Read next: graph/compute.h, which runs graphs on it.
#pragma once

#include "ggml-train/base/device.h"
#include "ggml-train/device/registry.h"

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

namespace gt {

class Backend {
public:
    Backend(const DeviceSpec & device, int n_threads);
    Backend(const std::string & device, int n_threads);  // REQUIRES: it names one device
    ~Backend();
    Backend(const Backend &)             = delete;
    Backend & operator=(const Backend &) = delete;

    ggml_backend_t get() const { return backend_.get(); }
    bool           is_host() const;  // host code may read and write its memory
    Device *       device() const { return device_.get(); }  // null: no kernels of ours run there
    int            n_threads() const { return n_threads_; }

    // While the result lives, pointers into the device's memory may be passed to LocalGroup.
    std::shared_ptr<void> access() const { return lend_memory(get()); }

    // Zeroed memory for all tensors of a context. If there is too little, an Error names the size.
    ggml_backend_buffer_ptr allocate(ggml_context * ctx, const char * what) const;

    // Places the intermediate tensors of graphs, reusing memory. Several share it: they must run one
    // after another, and leave nothing there for the next.
    ggml_gallocr_ptr plan(std::vector<ggml_cgraph *> graphs) const;

    // Gives the pages of a planned graph's intermediate tensors back to the system; their values are lost. Does
    // nothing on devices.
    void release(ggml_cgraph * graph) const;

private:
    void set_threads(ggml_backend_reg_t reg);

    struct PoolDeleter {
        void operator()(struct ggml_threadpool * pool) const;
    };
    int                                                  n_threads_;
    std::unique_ptr<struct ggml_threadpool, PoolDeleter> pool_;
    ggml_backend_ptr                                     backend_;
    std::unique_ptr<Device>                              device_;
};

// How backends may multiply F32 matrices. ggml would round the factors wherever that is faster: to TF32
// on NVIDIA, to F16 on Vulkan, where gradients underflow.
enum class Products { f32, tf32, half };

// For all devices of this process; f32 unless it is called. REQUIRES: no backend was made yet.
void allow_products(Products products);

// An empty context for tensor descriptions: no data lives in it.
ggml_context_ptr make_context(size_t n_tensors, size_t graph_nodes = 0);

}  // namespace gt
