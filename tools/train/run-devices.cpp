#include "tools/train/run-devices.h"

namespace gt {

void run_devices(
    const std::string & devices, int n_ranks, const std::function<void(LocalGroup & ranks)> & fn
) {
    const std::vector<DeviceSpec> specs = parse_devices(devices);
    std::vector<int>              indices;
    for (const DeviceSpec & spec : specs) {
        indices.push_back(spec.index);
        check_device(spec);
    }
    if (specs.size() == 1) {
        run_ranks(n_ranks, fn);
        return;
    }
    if (n_ranks != 1 && n_ranks != static_cast<int>(specs.size())) {
        throw Error(format(
            "--ranks %d with %zu devices: each device is a rank; drop --ranks", n_ranks,
            specs.size()
        ));
    }
    run_ranks_nccl(indices, fn);
}

}  // namespace gt
