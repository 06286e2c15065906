// optim/wire/signs.cpp — q1: a sign per value times the mean magnitude of the group, which has one byte. What
// rounding leaves out stays in the sender's residual.
#include "optim/wire/quantize.h"

#include <algorithm>
#include <cstring>

namespace gt::values {

// The mean of the magnitudes; lanes fix the order of the sum.
static float mean_magnitude(const float * x, int64_t n) {
    constexpr int64_t kLanes      = 16;
    float             sum[kLanes] = {};
    int64_t           i           = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) {
            sum[l] += magnitude(x[i + l]);
        }
    }
    for (int64_t l = 0; i + l < n; ++l) {
        sum[l] += magnitude(x[i + l]);
    }
    float total = 0.0f;
    for (const float s : sum) {
        total += s;
    }
    return total / static_cast<float>(n);
}

// The scale as the upper bits of a float with two bits of mantissa, rounded to nearest, from 2^-41.75 to
// 1.5 * 2^21: larger ones become that, smaller ones 0.
constexpr uint8_t  kRefusedByte = 255;
constexpr uint32_t kZero = 4 * (127 - 42), kLargest = kRefusedByte - 1;

static uint8_t encode_byte(float scale) {
    const uint32_t upper = (std::bit_cast<uint32_t>(scale) + 0x100000u) >> 21;
    return static_cast<uint8_t>(upper < kZero ? 0 : std::min(upper - kZero, kLargest));
}

static float decode_byte(uint8_t s) {
    return s == 0 ? 0.0f : std::bit_cast<float>((s + kZero) << 21);
}

void encode_signs(const float * x, int64_t n, uint8_t * out, float * restored) {
    const uint8_t s = largest(x, n) <= kHuge ? encode_byte(mean_magnitude(x, n)) : kRefusedByte;
    out[0]          = s;
    std::memset(out + 1, 0, code_bytes(n, 1));
    if (s == 0 || s == kRefusedByte) {
        std::memset(restored, 0, n * sizeof(float));
        return;
    }
    const float scale = decode_byte(s);
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t count = n - i < 8 ? n - i : 8;
        uint32_t      bits  = 0;
        for (int64_t j = 0; j < count; ++j) {
            const uint32_t negative = std::bit_cast<uint32_t>(x[i + j]) >> 31;
            bits |= negative << j;
            restored[i + j] = negative != 0 ? -scale : scale;
        }
        out[1 + i / 8] = static_cast<uint8_t>(bits);
    }
}

const char * decode_signs(const uint8_t * in, int64_t n, float * x) {
    const int64_t n_bytes = code_bytes(n, 1);
    if (in[0] == kRefusedByte) {
        return kBadScale;
    }
    if (in[0] == 0) {
        std::memset(x, 0, n * sizeof(float));
        return is_zero(in + 1, n_bytes) ? nullptr : kBadCode;
    }
    const uint32_t scale = std::bit_cast<uint32_t>(decode_byte(in[0]));
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t negative = in[1 + i / 8] >> i % 8 & 1u;
        x[i]                    = std::bit_cast<float>(scale | negative << 31);
    }
    return n % 8 == 0 || in[n_bytes] >> n % 8 == 0 ? nullptr : kBadCode;
}

}  // namespace gt::values
