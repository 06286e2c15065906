#include "ggml-train/ggml-device.h"

#include "ggml-train/cuda/table.h"
#include "ggml-train/fake-device.h"

#include <dlfcn.h>
#include <filesystem>
#include <ggml-cpp.h>
#include <optional>

namespace gt {

namespace {

class GgmlDevice : public Device {
public:
    GgmlDevice(ggml_backend_t backend, const cuda::Kernels & (*kernels)(int), int index)
        : backend_(backend), kernels_(kernels), index_(index) {}

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

    // Emulated kernels run here, not before: only now may they touch the fake device's memory.
    void wait() override {
        lend([] {});
    }

    void lend(const std::function<void()> & fn) override {
        std::optional<FakeDeviceOpen> open;
        if (is_fake_device(backend_)) {
            open.emplace(backend_);
        }
        kernels().synchronize(nullptr);
        fn();
    }

    // A thread that has worked on another device comes back to this one.
    const cuda::Kernels & kernels() const override {
        const cuda::Kernels & kernels = kernels_(index_);
        kernels.set_device(index_);
        return kernels;
    }

private:
    ggml_backend_t backend_;
    const cuda::Kernels & (*kernels_)(int);
    int                                  index_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    void *                               scratch_       = nullptr;
    size_t                               scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device>
make_device(ggml_backend_t backend, const cuda::Kernels & (*kernels)(int), int index) {
    return std::make_unique<GgmlDevice>(backend, kernels, index);
}

std::string test_library(const std::string & name) {
    const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
    if (!std::filesystem::exists(path)) {
        throw Error(
            "--device fake: " + path.string() +
            " is not there; it is built with the tests (-DGT_TESTS=ON)"
        );
    }
    return path.string();
}

const cuda::Kernels & emulated_kernels(int) {
    static const cuda::Kernels * const table = [] {
        void * library = dlopen(test_library("libgt-emulated.so").c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            throw Error(std::string("--device fake: ") + dlerror());
        }
        using Get = const cuda::Kernels * (*) ();
        return reinterpret_cast<Get>(dlsym(library, "gt_emulated_kernels"))();
    }();
    return *table;
}

}  // namespace gt
