// tools/train/trust-no-gpu.cpp — a program built without GT_CUDA has no kernels to compare.
#include "tools/train/run-devices.h"

namespace gt {

void check_device(const DeviceSpec & device) {
    (void) find_device(device);
}

}  // namespace gt
