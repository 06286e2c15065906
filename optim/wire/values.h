// optim/wire/values.h — a group of floats <-> bytes, in the wire types. Part of the message format:
//
// A group is the values of one chunk (kind sparse: selected by top-k, never near zero) or up to 64
// (q1, q2: 256) neighbours (kind dense). n values, little-endian, no padding between groups:
//
//   wire  kind    bytes          content
//   fp32  both    4n             n x float
//   fp16  both    1 + 2n         e, n x half; value = half * 2^(e - 141); e = 0: all zero
//   q8    both    2 + n          s, n x int8 in -127..127; value = code * (s / 127)
//   q4    sparse  3 + ceil(n/2)  s, r, n x 4 bits: sign (high bit), level; level 0 is s * sqrt(R),
//                                each next one R times that; R = (r + 1) / 256, r >= 31
//   q2    sparse  3 + ceil(n/4)  s, r, n x 2 bits: sign, level; level 0 is s, level 1 is s * R
//   q4    dense   2 + ceil(n/2)  s, n x 4 bits in 1..15; value = (code - 8) * (s / 7)
//   q2    dense   1 + ceil(n/5)  b, n digits of base 3, five in a byte, the lowest first;
//                                value = (digit - 1) * s
//   q1    both    1 + ceil(n/8)  b, n x 1 bit: sign; value = s or -s
//
// s: the upper 16 bits of a float, positive, 2^-80 <= s <= 2^30, or 0: then all values and all further
// bytes are zero. b: s = (1 + (b mod 4) / 4) 2^(floor(b / 4) - 42), and 0 as for s; 255 is invalid.
// Codes fill bytes from the low bits up; unused bits are zero. Magnitudes are at most 2^30. Anything
// else is invalid. Values are rounded to the nearest level; a group whose largest magnitude is below
// 2^-80 (q1: the mean magnitude, 2^-42) is sent as zeros. Arithmetic is + - * / sqrt in the order
// written here.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

enum class Wire : uint8_t { fp32 = 0, fp16 = 1, q8 = 2, q4 = 3, q2 = 4, q1 = 5 };
enum class Group : uint8_t { sparse, dense };

// Values in a dense group; the last of a row may be shorter.
constexpr int64_t kLargestGroup = 256;
constexpr int64_t dense_group(Wire wire) {
    return wire == Wire::q1 || wire == Wire::q2 ? kLargestGroup : 64;
}

int64_t group_bytes(Wire wire, Group kind, int64_t n);

// Writes group_bytes to `out`, and the values a receiver will decode to `restored` (may be x itself).
// A group with a NaN, an Inf or a magnitude above 2^30 is encoded as an invalid group, restored as 0.
void encode_group(
    Wire wire, Group kind, const float * x, int64_t n, uint8_t * out, float * restored
);

// Reads n values; returns null, or why the bytes are invalid (x is then undefined).
[[nodiscard]] const char *
decode_group(Wire wire, Group kind, const uint8_t * in, int64_t n, float * x);

// Bytes of n dense values in groups of dense_group, the last one shorter.
int64_t dense_bytes(Wire wire, int64_t n);

// One host's bytes for a unit, and its weight in the mean.
struct Piece {
    const uint8_t * bytes  = nullptr;
    double          weight = 1.0;  // samples
    double          scale  = 1.0;  // see clip_scales
};

// Factors that reduce norms to at most `clip` times their median (of the positive ones, the lower of
// two), so that a host that explodes moves the mean little; 1 for all others, and if clip is 0.
std::vector<double> clip_scales(std::span<const double> norms, float clip);

// The weighted mean of n <= dense_group values of the dense group at `offset` of each piece; total is
// the sum of the weights. All sums of dense values over hosts are made here, in one order.
// REQUIRES: the groups are valid.
void mean_of_group(
    Wire wire, std::span<const Piece> pieces, int64_t offset, int64_t n, double total, float * mean
);

}  // namespace gt
