#include "comm/local/check-ranks.h"

#include "comm/local/nccl-table.h"

namespace gt {

// Runs every verb and returns this rank's memory after each, concatenated. The values are small whole
// numbers, whose sum is exact in any order. device: whose memory is used; null: the host's.
static std::vector<float> round_trip(LocalGroup & ranks, Device * device) {
    const auto           rank = static_cast<size_t>(ranks.rank());
    std::vector<int64_t> equal{0}, unequal{0};
    for (int r = 0; r < ranks.size(); ++r) {
        equal.push_back(equal.back() + 100);
        unequal.push_back(unequal.back() + 90 + 7 * r);
    }
    std::vector<float> got;
    for (const std::vector<int64_t> & offsets : {equal, unequal}) {
        const auto         n = static_cast<size_t>(offsets.back());
        std::vector<float> values(n), host(device ? 0 : n);
        for (size_t i = 0; i < n; ++i) {
            values[i] = static_cast<float>((rank + 1) * (i % 100));
        }
        const size_t bytes = n * sizeof(float);
        float * data = device ? static_cast<float *>(device->alloc(bytes, "a test")) : host.data();
        const Floats all{{data, n}, device};
        const auto   own = all.values.subspan(
              static_cast<size_t>(offsets[rank]),
              static_cast<size_t>(offsets[rank + 1] - offsets[rank])
          );
        const auto step = [&](const std::function<void()> & verb) {
            {
                const std::shared_ptr<void> access = device ? device->access() : nullptr;
                verb();
            }
            const std::vector<float> now = all.read();
            got.insert(got.end(), now.begin(), now.end());
        };
        all.write(values);
        step([&] { ranks.reduce_scatter(all.values, offsets, own); });
        step([&] { ranks.all_gather(own, offsets, all.values); });
        step([&] { ranks.all_reduce(all.values); });
    }
    for (int root = 0; root < ranks.size(); ++root) {
        uint8_t byte = static_cast<uint8_t>(rank + 1);
        ranks.broadcast({&byte, 1}, root);
        got.push_back(static_cast<float>(byte));
    }
    ranks.barrier();
    return got;
}

void check_ranks(LocalGroup & ranks, Device & device) {
    const std::vector<float> got = round_trip(ranks, &device);
    std::vector<float>       want;
    run_ranks(ranks.size(), [&](LocalGroup & in_memory) {
        const std::vector<float> values = round_trip(in_memory, nullptr);
        if (in_memory.rank() == ranks.rank()) {
            want = values;
        }
    });
    for (size_t i = 0; i < want.size(); ++i) {
        if (got[i] != want[i]) {
            throw Error(format(
                "NCCL self-test failed: reduced value %g, expected %g. Update NCCL and the driver, "
                "or use one device",
                static_cast<double>(got[i]), static_cast<double>(want[i])
            ));
        }
    }
}

std::string check_nccl(int n, const MakeDevice & make_device, const std::string & library) {
    try {
        load_nccl(library);
    } catch (const Error & e) {
        return std::string("nccl: not tested: ") + e.what();
    }
    std::vector<int> devices;
    for (int i = 0; i < n; ++i) {
        devices.push_back(i);
    }
    run_ranks_nccl(
        devices,
        [&](LocalGroup & ranks) {
            const std::shared_ptr<Device> device = make_device(ranks.rank());
            check_ranks(ranks, *device);
        },
        {.nccl = library}
    );
    return format("nccl: %d devices, all verbs agree with shared memory", n);
}

}  // namespace gt
