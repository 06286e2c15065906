// optim/wire/indices.h — k ascending indices out of n <-> bytes. Part of the message format:
//
//   k = n      no bytes
//   bitmap     n bits, bit i set: index i is present; used if not longer than
//   Elias-Fano k x l low bits of each index, then a bit row in which the i-th index sets bit
//              (index >> l) + i; l minimises the size, the smaller l on a tie
//
// Bits fill bytes from the low end; unused bits are zero. The size depends on n and k alone:
// 4096 choose 32 takes 36 bytes, 9.0 bits an index where the bound is 8.4.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

class IndexCode {
public:
    IndexCode() = default;
    IndexCode(int64_t n, int64_t k);  // 1 <= k <= n <= 65536

    int64_t bytes() const { return bytes_; }

    // REQUIRES: k indices, ascending.
    void encode(const uint16_t * index, uint8_t * out) const;

    // Returns null, or why the bytes are invalid: not k, not ascending, out of bounds, unused bits.
    [[nodiscard]] const char * decode(const uint8_t * in, uint16_t * index) const;

private:
    int64_t n_ = 1, k_ = 1, bytes_ = 0;
    int64_t upper_bits_ = 0;  // length of the bit row
    int     low_        = 0;  // l; -1: bitmap
};

}  // namespace gt
