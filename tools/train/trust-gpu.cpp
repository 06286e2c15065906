// tools/train/trust-gpu.cpp — a few small shapes of selftest --cuda, before a GPU is used.
#include "ggml-train/cuda/table.h"
#include "tools/selftest/selftest-cuda.h"
#include "tools/train/run-devices.h"

namespace gt {

void check_device(const DeviceSpec & device) {
    if (find_kernels(find_device(device)) != &cuda::kernels()) {
        return;
    }
    cuda::set_device(device.index);
    for (const SelftestRow & row : selftest_cuda({.small = true})) {
        if (!row.ok) {
            throw Error(format(
                "%s does not compute what the CPU does (%s: error %g); update the driver and run "
                "selftest --cuda",
                device.name().c_str(), row.name.c_str(), row.error
            ));
        }
    }
}

}  // namespace gt
