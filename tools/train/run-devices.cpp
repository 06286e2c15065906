#include "tools/train/run-devices.h"

#include "ggml-train/base/text.h"

#include <algorithm>
#include <cctype>
#include <map>

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

std::string device_list() {
    std::map<std::string, int> n_of;
    std::string                text;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev  = ggml_backend_dev_get(i);
        std::string        name = ggml_backend_reg_name(ggml_backend_dev_backend_reg(dev));
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
            return static_cast<char>(std::tolower(c));
        });
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(dev, &free, &total);
        text += format(
            "  %s:%d  %s, %s\n", name.c_str(), n_of[name]++, ggml_backend_dev_description(dev),
            bytes_text(total).c_str()
        );
    }
    return "devices (--device):\n" + text;
}

}  // namespace gt
