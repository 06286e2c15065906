// ggml-train/device/registry.h — devices by name, from ggml's backend registry.
//
// --device auto, or NAME[:INDEX[:PARAMS]],...: NAME is a ggml backend (cpu, cuda, ...), INDEX counts its
// devices, PARAMS is text for the backend itself. A backend that is not compiled in (vulkan) is loaded from
// libggml-NAME.so in the program's folder.
//
// A backend may offer more than ggml's interface, through ggml_backend_reg_get_proc_address:
//   gt_kernels  const cuda::Kernels * (*)()               our kernels, for its devices
//   gt_lend     void (*)(ggml_backend_t, bool begin)      brackets every access to device memory that
//                                                         does not go through ggml
#pragma once

#include "ggml-train/base/base.h"

#include <ggml-backend.h>

namespace gt {

namespace cuda {
struct Kernels;
}

// One device of the list.
struct DeviceSpec {
    std::string backend = "cpu";
    int         index   = 0;
    std::string params{};

    std::string name() const;  // "cuda:0"
};

// What `auto` means on this machine: the first GPU that this program can use, else "cpu". Other text is
// returned as it is.
std::string choose_device(const std::string & text);

// The list, one entry per rank. All are devices of one backend.
std::vector<DeviceSpec> parse_devices(const std::string & text);

// The backend of this name, loaded from a module if it is not registered yet. Null: there is none. An
// Error: its module is there and cannot be loaded.
ggml_backend_reg_t find_backend(const std::string & name);

// Never null: an Error names the backend or the device that is missing.
ggml_backend_dev_t find_device(const DeviceSpec & spec);

// Our kernels for a device; null if there are none, and only ggml's ops run there.
const cuda::Kernels * find_kernels(ggml_backend_dev_t device);

// Whether our kernels run there, and it multiplies bf16 on tensor cores.
bool multiplies_bf16(const DeviceSpec & device);

// Whether host code may read and write the device's memory.
bool is_host(ggml_backend_dev_t device);

// While the result lives, code other than ggml's may use pointers into the device's memory.
std::shared_ptr<void> lend_memory(ggml_backend_t backend);

}  // namespace gt
