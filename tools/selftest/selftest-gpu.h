// tools/selftest/selftest-gpu.h — a GPU as a Device, without ggml.
#pragma once

#include "ggml-train/base/device.h"
#include "ggml-train/cuda/table.h"
#include "optim/device/room.h"

#include <algorithm>

namespace gt {

class SelftestGpu : public Device {
public:
    // Also selects the GPU for this thread.
    explicit SelftestGpu(int index) : index_(index) { cuda::set_device(index_); }
    ~SelftestGpu() override {
        wait();
        for (void * p : memory_) {
            cuda::free(p);
        }
    }

    void * alloc(size_t bytes, const char *) override {
        cuda::set_device(index_);
        memory_.push_back(cuda::alloc(std::max<size_t>(bytes, 1)));
        cuda::set_zero(nullptr, memory_.back(), bytes);
        return memory_.back();
    }
    void * scratch(size_t bytes) override { return scratch_.of(bytes); }
    void   read(void * host, const void * at, size_t bytes) override {
        kernels().copy_out(nullptr, host, at, bytes);
        wait();
    }
    void write(void * at, const void * host, size_t bytes) override {
        kernels().copy_in(nullptr, at, host, bytes);
        wait();
    }
    void                  wait() override { kernels().synchronize(nullptr); }
    std::shared_ptr<void> access() override {
        wait();
        return nullptr;
    }
    const cuda::Kernels & kernels() const override {
        cuda::set_device(index_);
        return cuda::kernels();
    }

private:
    int                 index_;
    std::vector<void *> memory_;
    Room                scratch_{*this, "small results"};
};

}  // namespace gt
