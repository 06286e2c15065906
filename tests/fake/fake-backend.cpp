// tests/fake/fake-backend.cpp — the fake device as a ggml backend module, libggml-fake.so: a program
// started with `--device fake`, `fake:0,fake:1`, `fake:0:64` (64 MB) or `fake:0:metal` (without the ops that
// ggml's Metal backend lacks) loads it from its own folder.
//
// Every backend made here is a device of its own, with memory and limit of its own, even if two have
// the same index. The module takes ggml's functions from the program that loads it. Our kernels run
// under the CUDA emulator (tests/cuda) and stay inside the module: a program may have the same ones
// for GPUs.
#include "ggml-backend-impl.h"
#include "ggml-train/base/base.h"
#include "tests/fake/fake-device.h"
#ifdef GT_EMULATED
#include "ggml-train/cuda/table.h"
#endif

#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace gt {

namespace {

constexpr size_t kDevices = 8;

ggml_backend_reg * the_reg();

// An entry of the registry. Before a program has made a backend, an example device answers questions
// about buffer type and supported ops.
struct Listed {
    std::string         name;
    int                 index = 0;
    ggml_backend_device dev{};
    std::once_flag      made;
    ggml_backend_t      backend = nullptr;

    ggml_backend_dev_t example() {
        std::call_once(made, [this] { backend = make_fake_device(index, 1, 0); });
        return ggml_backend_get_device(backend);
    }
};

Listed & listed(ggml_backend_dev_t dev) {
    return *static_cast<Listed *>(dev->context);
}

// params: the limit in MB, "metal", or null.
ggml_backend_t init_backend(ggml_backend_dev_t dev, const char * params) {
    const bool   metal     = params && std::strcmp(params, "metal") == 0;
    const size_t megabytes = params ? std::strtoul(params, nullptr, 10) : 0;
    if (params && megabytes == 0 && !metal) {
        return nullptr;
    }
    ggml_backend_t backend = make_fake_device(listed(dev).index, 1, megabytes * 1'000'000);
    ggml_backend_get_device(backend)->reg = the_reg();
    if (metal) {
        refuse_on_fake_device(
            backend, {GGML_OP_REPEAT_BACK, GGML_OP_RMS_NORM_BACK, GGML_OP_GET_ROWS_BACK,
                      GGML_OP_DIAG_MASK_INF}
        );
    }
    return backend;
}

ggml_backend_device_i listed_interface() {
    ggml_backend_device_i i{};
    i.get_name        = [](ggml_backend_dev_t dev) { return listed(dev).name.c_str(); };
    i.get_description = [](ggml_backend_dev_t dev) {
        return ggml_backend_dev_description(listed(dev).example());
    };
    i.get_memory = [](ggml_backend_dev_t, size_t * free, size_t * total) { *free = *total = 0; };
    i.get_type   = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    i.get_props  = [](ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
        ggml_backend_dev_get_props(listed(dev).example(), props);
    };
    i.init_backend    = init_backend;
    i.get_buffer_type = [](ggml_backend_dev_t dev) {
        return ggml_backend_dev_buffer_type(listed(dev).example());
    };
    i.supports_op = [](ggml_backend_dev_t dev, const ggml_tensor * op) {
        return ggml_backend_dev_supports_op(listed(dev).example(), op);
    };
    i.supports_buft = [](ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
        return ggml_backend_dev_supports_buft(listed(dev).example(), buft);
    };
    return i;
}

#ifdef GT_EMULATED
const cuda::Kernels * kernels() {
    return &cuda::kernels();
}
#endif

void * proc_address(ggml_backend_reg_t, const char * name) {
    if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) {
        return reinterpret_cast<void *>(set_fake_device_threads);
    }
    if (std::strcmp(name, "gt_fake_stats") == 0) {
        return reinterpret_cast<void *>(fake_device_stats);
    }
    if (std::strcmp(name, "gt_lend") == 0) {
        return reinterpret_cast<void *>(lend_fake_device);
    }
#ifdef GT_EMULATED
    if (std::strcmp(name, "gt_kernels") == 0) {
        return reinterpret_cast<void *>(kernels);
    }
#endif
    return nullptr;
}

ggml_backend_dev_t get_device(ggml_backend_reg_t reg, size_t index) {
    static std::array<Listed, kDevices> devices;
    Listed &                            entry = devices[index];
    if (entry.name.empty()) {
        entry.name  = format("FAKE%zu", index);
        entry.index = static_cast<int>(index);
        entry.dev   = {listed_interface(), reg, &entry};
    }
    return &entry.dev;
}

ggml_backend_reg * the_reg() {
    static ggml_backend_reg reg{
        GGML_BACKEND_API_VERSION,
        {.get_name         = [](ggml_backend_reg_t) { return "FAKE"; },
         .get_device_count = [](ggml_backend_reg_t) { return kDevices; },
         .get_device       = get_device,
         .get_proc_address = proc_address},
        nullptr};
    return &reg;
}

}  // namespace

}  // namespace gt

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() {
    return gt::the_reg();
}
