// tools/trust-gpu.cpp — a few small shapes of selftest --cuda, before a GPU is used.
#include "tools/run-devices.h"
#include "tools/selftest-cuda.h"

namespace gt {

void trust_gpu(int index) {
    cuda::set_device(index);
    for (const SelftestRow & row : selftest_cuda({.small = true})) {
        if (!row.ok) {
            throw Error(format(
                "cuda:%d does not compute what the CPU does (%s: error %g); update the driver, and "
                "see what selftest --cuda says",
                index, row.name.c_str(), row.error
            ));
        }
    }
}

}  // namespace gt
