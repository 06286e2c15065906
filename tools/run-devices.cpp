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

void check_ranks(LocalGroup & ranks, Device & device) {
    std::vector<int64_t> offsets{0};
    for (int r = 0; r < ranks.size(); ++r) {
        offsets.push_back(offsets.back() + 100 + 7 * r);  // slices of unequal length
    }
    const auto         n = static_cast<size_t>(offsets.back());
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) {
        values[i] = static_cast<float>((ranks.rank() + 1) * static_cast<int>(i % 100));
    }
    const Floats all{{static_cast<float *>(device.alloc(n * sizeof(float), "a test")), n}, &device};
    const auto   begin = static_cast<size_t>(offsets[static_cast<size_t>(ranks.rank())]);
    const auto   own   = all.values.subspan(begin, 100 + 7 * static_cast<size_t>(ranks.rank()));
    all.write(values);
    device.lend([&] {
        ranks.reduce_scatter(all.values, offsets, own);
        ranks.all_gather(own, offsets, all.values);
    });
    values = all.read();
    for (size_t i = 0; i < n; ++i) {
        const int want = ranks.size() * (ranks.size() + 1) / 2 * static_cast<int>(i % 100);
        if (values[i] != static_cast<float>(want)) {
            throw Error(format(
                "the devices of this host add up %g where it should be %d; update NCCL and the "
                "driver, or use one device",
                static_cast<double>(values[i]), want
            ));
        }
    }
}

}  // namespace gt
