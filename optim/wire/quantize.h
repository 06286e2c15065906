// optim/wire/quantize.h — internal to values.cpp: q8, q4, q2 and q1, and helpers of all types.
#pragma once

#include "optim/wire/values.h"

#include <bit>

namespace gt::values {

constexpr float kTiny = 0x1p-80f;
constexpr float kHuge = 0x1p30f;

inline const char * const kBadScale = "a scale is not finite or out of range";
inline const char * const kBadValue = "a value is not finite or out of range";
inline const char * const kBadCode  = "an invalid code";

inline float magnitude(float x) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu);
}

// The largest magnitude; NaN if one value is NaN.
float largest(const float * x, int64_t n);

bool is_zero(const uint8_t * bytes, int64_t n);

// The upper half of a float, rounded up, so that the scale is never below the magnitude; kRefused for
// what no message may hold.
constexpr uint16_t kRefused = 0x7f80;  // infinity
uint16_t           encode_scale(float x);
float              decode_scale(uint16_t s);
bool               is_valid_scale(uint16_t s);

// Bytes of n codes of `bits` bits.
inline int64_t code_bytes(int64_t n, int bits) {
    return (n * bits + 7) / 8;
}

// Equidistant levels: q8, and q4 of dense groups.
void         encode_linear(Wire wire, const float * x, int64_t n, uint8_t * out, float * restored);
const char * decode_linear(Wire wire, const uint8_t * in, int64_t n, float * x);

// A sign and levels at equal ratios: q4 and q2 of sparse groups.
void         encode_levels(Wire wire, const float * x, int64_t n, uint8_t * out, float * restored);
const char * decode_levels(Wire wire, const uint8_t * in, int64_t n, float * x);

// A sign and one magnitude: q1.
void         encode_signs(const float * x, int64_t n, uint8_t * out, float * restored);
const char * decode_signs(const uint8_t * in, int64_t n, float * x);

// A sign or nothing, and one magnitude: q2 of dense groups.
void           encode_ternary(const float * x, int64_t n, uint8_t * out, float * restored);
const char *   decode_ternary(const uint8_t * in, int64_t n, float * x);
inline int64_t ternary_bytes(int64_t n) {
    return (n + 4) / 5;
}

}  // namespace gt::values
