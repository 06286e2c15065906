#include "ggml-train/device/device-ggml.h"

#include "ggml-train/cuda/table.h"
#include "ggml-train/device/registry.h"

#include <ggml-backend-impl.h>
#include <ggml-cpp.h>

namespace gt {

namespace {

class GgmlDevice : public Device {
public:
    GgmlDevice(ggml_backend_t backend, const cuda::Kernels & kernels, int index)
        : backend_(backend), kernels_(kernels), index_(index),
          event_(ggml_backend_event_new(ggml_backend_get_device(backend))) {
        GT_CHECK(event_, "ggml's backend of devices that have our kernels has events");
    }

    void * alloc(size_t bytes, const char * what) override {
        ggml_backend_buffer_ptr buffer(
            ggml_backend_alloc_buffer(backend_, std::max<size_t>(bytes, 1))
        );
        if (!buffer) {
            throw Error(format(
                "out of memory: %.1f MB for %s on %s; take a smaller model, or --shard full over "
                "more devices",
                static_cast<double>(bytes) / 1e6, what, ggml_backend_name(backend_)
            ));
        }
        ggml_backend_buffer_clear(buffer.get(), 0);
        buffers_.push_back(std::move(buffer));
        return ggml_backend_buffer_get_base(buffers_.back().get());
    }

    void * scratch(size_t bytes) override {
        if (bytes > scratch_bytes_) {
            scratch_bytes_ = bytes;
            scratch_       = alloc(bytes, "small results");
        }
        return scratch_;
    }

    void read(void * host, const void * device, size_t bytes) override {
        kernels().copy_out(nullptr, host, device, bytes);
        wait();
    }

    void write(void * device, const void * host, size_t bytes) override {
        kernels().copy_in(nullptr, device, host, bytes);
        wait();
    }

    void wait() override { (void) access(); }

    void kernels_follow_ggml() override {
        ggml_backend_event_record(event_.get(), backend_);
        kernels().wait_for(nullptr, event_->context);
    }

    void ggml_follows_kernels() override {
        kernels().record(nullptr, event_->context);
        ggml_backend_event_wait(backend_, event_.get());
    }

    // Kernels that were started before may run as late as in synchronize: the memory is lent by then.
    std::shared_ptr<void> access() override {
        std::shared_ptr<void> lent = lend_memory(backend_);
        kernels().synchronize(nullptr);
        return lent;
    }

    // Selects the device again: this thread may have used another one meanwhile.
    const cuda::Kernels & kernels() const override {
        kernels_.set_device(index_);
        return kernels_;
    }

private:
    ggml_backend_t                       backend_;
    const cuda::Kernels &                kernels_;
    int                                  index_;
    ggml_backend_event_ptr               event_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    void *                               scratch_       = nullptr;
    size_t                               scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device>
make_device(ggml_backend_t backend, const cuda::Kernels & kernels, int index) {
    return std::make_unique<GgmlDevice>(backend, kernels, index);
}

}  // namespace gt
