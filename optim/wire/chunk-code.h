// optim/wire/chunk-code.h — the k values of a chunk of n that travel <-> bytes: the values (values.h, kind
// sparse), then their indices (indices.h).
#pragma once

#include "optim/wire/indices.h"
#include "optim/wire/values.h"

namespace gt {

class ChunkCode {
public:
    ChunkCode() = default;
    ChunkCode(Wire wire, int64_t n, int64_t k);

    int64_t n() const { return n_; }
    int64_t k() const { return k_; }
    int64_t bytes() const { return value_bytes_ + indices_.bytes(); }

    // index: ascending. restored: the values that a receiver will decode.
    void encode(const uint16_t * index, const float * value, uint8_t * out, float * restored) const;

    // Returns null, or why the bytes are invalid.
    [[nodiscard]] const char * decode(const uint8_t * in, uint16_t * index, float * value) const;

private:
    Wire      wire_ = Wire::fp32;
    int64_t   n_ = 1, k_ = 1, value_bytes_ = 0;
    IndexCode indices_;
};

}  // namespace gt
