// tools/selftest/selftest-nccl.cpp — tests NCCL between all GPUs.
#include "comm/local/check-ranks.h"
#include "tools/selftest/selftest-cuda.h"
#include "tools/selftest/selftest-gpu.h"

namespace gt {

std::string selftest_nccl(int n_devices) {
    return check_nccl(n_devices, [](int index) { return std::make_shared<SelftestGpu>(index); });
}

}  // namespace gt
