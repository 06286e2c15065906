// ggml-train/base/digests.h — digest64 of many blocks, faster than one after the other.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

// digest64 of each block of `data` with the seeds seed, seed + 1, ...; the last may be shorter. Several are
// computed side by side, since a digest waits for each of its products.
std::vector<uint64_t> digests64(std::span<const uint8_t> data, size_t block_bytes, uint64_t seed);

}  // namespace gt
