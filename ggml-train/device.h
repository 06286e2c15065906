// ggml-train/device.h — a rank's device for those who keep floats in its memory and run our kernels
// on them (cuda/table.h): optimizers, checkpoints, digests. No ggml header; Backend makes one.
#pragma once

#include "ggml-train/base.h"

#include <functional>

namespace gt {

namespace cuda {
struct Kernels;
}

class Device {
public:
    virtual ~Device() = default;

    // Zeroed memory that lives as long as the device. An Error says how much was asked for.
    [[nodiscard]] virtual void * alloc(size_t bytes, const char * what) = 0;

    // Memory for kernels to leave something in, until the next call.
    [[nodiscard]] virtual void * scratch(size_t bytes) = 0;

    // Copies; when they return, they and all kernels started before are done. Any thread may read and
    // write while the rank's own waits.
    virtual void read(void * host, const void * device, size_t bytes)  = 0;
    virtual void write(void * device, const void * host, size_t bytes) = 0;

    // Waits for the kernels that this thread has started. They take the default stream, null.
    virtual void wait() = 0;

    // Runs fn, which gives the device's memory to another library, as NCCL.
    virtual void lend(const std::function<void()> & fn) = 0;

    // For kernels that this thread starts next.
    virtual const cuda::Kernels & kernels() const = 0;
};

// Floats where they live: in a device's memory or, with none, in the host's.
struct Floats {
    std::span<float> values;
    Device *         device = nullptr;

    std::vector<float> read() const;
    void               write(std::span<const float> from) const;  // REQUIRES: as many
    void               zero() const;
};

// The same for the host to read: where they are, or a copy from the device as they were.
class HostView {
public:
    explicit HostView(const Floats & floats);
    std::span<const float> values() const { return values_; }

private:
    std::vector<float>     copy_;
    std::span<const float> values_;
};

}  // namespace gt
