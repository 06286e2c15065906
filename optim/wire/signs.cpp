// optim/wire/signs.cpp — q1: a sign per value times the mean magnitude of the group. What rounding leaves
// out stays in the sender's residual.
#include "optim/wire/little-endian.h"
#include "optim/wire/quantize.h"

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

void encode_signs(const float * x, int64_t n, uint8_t * out, float * restored) {
    uint16_t s = encode_scale(largest(x, n));
    s          = s == 0 || s == kRefused ? s : encode_scale(mean_magnitude(x, n));
    put(out, s);
    std::memset(out + 2, 0, code_bytes(n, 1));
    if (s == 0 || s == kRefused) {
        std::memset(restored, 0, n * sizeof(float));
        return;
    }
    const float scale = decode_scale(s);
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t count = n - i < 8 ? n - i : 8;
        uint32_t      bits  = 0;
        for (int64_t j = 0; j < count; ++j) {
            const uint32_t negative = std::bit_cast<uint32_t>(x[i + j]) >> 31;
            bits |= negative << j;
            restored[i + j] = negative != 0 ? -scale : scale;
        }
        out[2 + i / 8] = static_cast<uint8_t>(bits);
    }
}

const char * decode_signs(const uint8_t * in, int64_t n, float * x) {
    const auto    s       = get<uint16_t>(in);
    const int64_t n_bytes = code_bytes(n, 1);
    if (!is_valid_scale(s)) {
        return kBadScale;
    }
    if (s == 0) {
        std::memset(x, 0, n * sizeof(float));
        return is_zero(in + 2, n_bytes) ? nullptr : kBadCode;
    }
    const uint32_t scale = std::bit_cast<uint32_t>(decode_scale(s));
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t negative = in[2 + i / 8] >> i % 8 & 1u;
        x[i]                    = std::bit_cast<float>(scale | negative << 31);
    }
    return n % 8 == 0 || in[1 + n_bytes] >> n % 8 == 0 ? nullptr : kBadCode;
}

}  // namespace gt::values
