#include "tools/run-devices.h"

#include "ggml-train/backend.h"
#include "ggml-train/ggml-device.h"

namespace gt {

void run_devices(
    const std::string & devices, int n_ranks, const std::function<void(LocalGroup & ranks)> & fn
) {
    const std::vector<DeviceSpec> specs = parse_devices(devices);
    std::vector<int>              indices;
    for (const DeviceSpec & spec : specs) {
        indices.push_back(spec.index);
        if (spec.kind == DeviceSpec::Kind::cuda) {
            cuda_kernels(spec.index);  // says so where there is no CUDA, no driver or no such GPU
            trust_gpu(spec.index);
        }
    }
    if (specs.size() == 1) {
        run_ranks(n_ranks, fn);
        return;
    }
    if (n_ranks != 1 && n_ranks != static_cast<int>(specs.size())) {
        throw Error(format(
            "--ranks %d with %zu devices: each device is a rank; leave --ranks away", n_ranks,
            specs.size()
        ));
    }
    RanksOptions options;
    if (specs[0].kind == DeviceSpec::Kind::fake) {
        options.nccl = test_library("libgt-fake-nccl.so");
    }
    run_ranks_nccl(indices, fn, options);
}

}  // namespace gt
