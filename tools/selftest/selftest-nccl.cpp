// tools/selftest/selftest-nccl.cpp — tests NCCL between all GPUs.
#include "comm/local/check-ranks.h"
#include "ggml-train/cuda/table.h"
#include "tools/selftest/selftest-cuda.h"

namespace gt {

namespace {

// A GPU as a Device, without ggml.
class Gpu : public Device {
public:
    explicit Gpu(int index) : index_(index) { cuda::set_device(index_); }
    ~Gpu() override {
        for (void * p : memory_) {
            cuda::free(p);
        }
    }

    void * alloc(size_t bytes, const char *) override {
        cuda::set_device(index_);
        memory_.push_back(cuda::alloc(bytes));
        write(memory_.back(), std::vector<uint8_t>(bytes).data(), bytes);
        return memory_.back();
    }
    void * scratch(size_t bytes) override { return alloc(bytes, "small results"); }

    void read(void * host, const void * device, size_t bytes) override {
        kernels().copy_out(nullptr, host, device, bytes);
        wait();
    }
    void write(void * device, const void * host, size_t bytes) override {
        kernels().copy_in(nullptr, device, host, bytes);
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
};

}  // namespace

std::string selftest_nccl(int n_devices) {
    return check_nccl(n_devices, [](int index) { return std::make_shared<Gpu>(index); });
}

}  // namespace gt
