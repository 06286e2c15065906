// tests/fake/dense-floats.cpp — see dense-floats.h.
#include "tests/fake/dense-floats.h"

#include <cstring>

namespace gt {

ShardCodec make_float_codec(int n_shards) {
    ShardCodec codec;
    codec.n_shards = n_shards;
    codec.split    = [](std::span<const uint8_t> message, int n) {
        std::vector<Bytes> shards;
        const size_t       n_floats = message.size() / 4;
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
            const size_t begin = 4 * (n_floats * i / n), end = 4 * (n_floats * (i + 1) / n);
            shards.emplace_back(message.begin() + begin, message.begin() + end);
        }
        return shards;
    };
    codec.average = [](std::span<const Message> shards) -> std::optional<Bytes> {
        Bytes    out(shards.empty() ? 0 : shards[0].bytes.size());
        uint64_t total = 0;
        for (const Message & shard : shards) {
            total += shard.bytes.size() == out.size() ? shard.weight : 0;
        }
        for (size_t i = 0; i + 4 <= out.size(); i += 4) {
            double sum = 0;
            for (const Message & shard : shards) {
                float value = 0;
                if (shard.bytes.size() == out.size()) {
                    std::memcpy(&value, &shard.bytes[i], 4);
                    sum += static_cast<double>(shard.weight) * static_cast<double>(value);
                }
            }
            const auto mean = static_cast<float>(sum / static_cast<double>(total));
            std::memcpy(&out[i], &mean, 4);
        }
        return out;
    };
    return codec;
}

}  // namespace gt
