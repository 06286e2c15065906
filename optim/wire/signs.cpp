// optim/wire/signs.cpp — q1: a sign per value times one magnitude; q2 of dense groups: a sign or nothing. The
// magnitude has one byte. What rounding leaves out stays in the sender's residual.
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

// Three levels: the mean of the magnitudes above 0.7 of their mean (ternary weight networks).
static float ternary_scale(const float * x, int64_t n) {
    float sum = 0.0f, above = 0.0f, count = 0.0f;
    for (int64_t i = 0; i < n; ++i) {
        sum += magnitude(x[i]);
    }
    const float edge = 0.7f * sum / static_cast<float>(n);
    for (int64_t i = 0; i < n; ++i) {
        if (magnitude(x[i]) > edge) {
            above += magnitude(x[i]);
            count += 1.0f;
        }
    }
    return count > 0.0f ? above / count : 0.0f;
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

// The scale of n_bytes of codes behind it. Writes it; without one (nothing to send, or refused) the codes
// and what they restore are 0.
static float put_scale(
    const float * x,
    int64_t       n,
    float (*scale)(const float *, int64_t),
    int64_t   n_bytes,
    uint8_t * out,
    float *   restored
) {
    out[0] = largest(x, n) <= kHuge ? encode_byte(scale(x, n)) : kRefusedByte;
    std::memset(out + 1, 0, n_bytes);
    if (out[0] == 0 || out[0] == kRefusedByte) {
        std::memset(restored, 0, n * sizeof(float));
        return 0.0f;
    }
    return decode_byte(out[0]);
}

void encode_signs(const float * x, int64_t n, uint8_t * out, float * restored) {
    const float scale = put_scale(x, n, mean_magnitude, code_bytes(n, 1), out, restored);
    if (scale == 0.0f) {
        return;
    }
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

// Digits of base 3, five in a byte.
constexpr int64_t kDigits = 5;

void encode_ternary(const float * x, int64_t n, uint8_t * out, float * restored) {
    const float scale = put_scale(x, n, ternary_scale, ternary_bytes(n), out, restored);
    if (scale == 0.0f) {
        return;
    }
    const float edge = 0.5f * scale;
    for (int64_t i = n - 1; i >= 0; --i) {
        const int k    = x[i] > edge ? 1 : x[i] < -edge ? -1 : 0;
        restored[i]    = static_cast<float>(k) * scale;
        uint8_t & byte = out[1 + i / kDigits];
        byte           = static_cast<uint8_t>(3 * byte + k + 1);
    }
}

const char * decode_ternary(const uint8_t * in, int64_t n, float * x) {
    if (in[0] == kRefusedByte) {
        return kBadScale;
    }
    if (in[0] == 0) {
        std::memset(x, 0, n * sizeof(float));
        return is_zero(in + 1, ternary_bytes(n)) ? nullptr : kBadCode;
    }
    const float scale = decode_byte(in[0]);
    bool        bad   = false;
    for (int64_t i = 0; i < n; i += kDigits) {
        int           byte = in[1 + i / kDigits];
        const int64_t end  = std::min(n, i + kDigits);
        for (int64_t j = i; j < end; ++j) {
            x[j] = static_cast<float>(byte % 3 - 1) * scale;
            byte /= 3;
        }
        bad |= byte != 0;
    }
    return bad ? kBadCode : nullptr;
}

}  // namespace gt::values
