// tests/comm/some-bytes.h — pseudo-random bytes by seed.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

inline Bytes some_bytes(size_t n, uint64_t seed) {
    Bytes out(n);
    for (size_t i = 0; i < n; i++) {
        out[i] = uint8_t(random_bits(seed, i / 8) >> (8 * (i % 8)));
    }
    return out;
}

}  // namespace gt
