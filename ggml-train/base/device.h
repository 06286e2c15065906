// ggml-train/base/device.h — the memory of a rank's device and our kernels on it (cuda/table.h), as
// optimizers, checkpoints and digests use them. No ggml header; device/backend.h makes one.
#pragma once

#include "ggml-train/base/base.h"

#include <memory>

namespace gt {

namespace cuda {
struct Kernels;
}

// Where floats are, if not in host memory. The addresses mean something to it alone.
class Memory {
public:
    virtual ~Memory() = default;

    // Copies. They return when the copy and all kernels started before it are done. Any thread may
    // call them while the rank's own thread waits.
    virtual void read(void * host, const void * at, size_t bytes)  = 0;
    virtual void write(void * at, const void * host, size_t bytes) = 0;
};

class Device : public Memory {
public:
    // Zeroed memory that lives as long as the device. If there is too little, an Error names the size.
    [[nodiscard]] virtual void * alloc(size_t bytes, const char * what) = 0;

    // Memory for small results of kernels, valid until the next call.
    [[nodiscard]] virtual void * scratch(size_t bytes) = 0;

    // Waits for the kernels that this thread started. All run on the default stream (null).
    virtual void wait() = 0;

    // What this thread starts on one stream from now on runs behind what is on the other one, without the host.
    // Nothing to do for a device without a stream of ggml's.
    virtual void kernels_follow_ggml() {}
    virtual void ggml_follows_kernels() {}

    // While the result lives, another library such as NCCL may use the device's memory.
    [[nodiscard]] virtual std::shared_ptr<void> access() = 0;

    // Also selects the device for the calling thread: call it before every launch.
    virtual const cuda::Kernels & kernels() const = 0;
};

// Floats in that memory or, if it is null, in the host's.
struct Floats {
    std::span<float> values;
    Memory *         memory = nullptr;

    std::vector<float> read() const;
    void               write(std::span<const float> from) const;  // REQUIRES: the same size
    void               zero() const;
};

// Floats for the host to read: in place, or copied from the device.
class HostView {
public:
    explicit HostView(const Floats & floats);
    std::span<const float> values() const { return values_; }

private:
    std::vector<float>     copy_;
    std::span<const float> values_;
};

}  // namespace gt
