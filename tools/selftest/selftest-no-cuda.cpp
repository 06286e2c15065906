// tools/selftest/selftest-no-cuda.cpp — selftest in a program without CUDA: nothing to test.
#include "tools/selftest/selftest-cuda.h"

namespace gt {

int cuda::n_devices(const char ** why) {
    *why = "built without CUDA; install NVIDIA's toolkit and configure with -DGT_CUDA=ON";
    return 0;
}

void cuda::set_device(int) {}

std::vector<SelftestRow> selftest_cuda(const SelftestOptions &) {
    return {};
}

std::string selftest_nccl(int) {
    return {};
}

}  // namespace gt
