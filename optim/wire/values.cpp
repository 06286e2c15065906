#include "optim/wire/values.h"

#include "optim/wire/little-endian.h"
#include "optim/wire/quantize.h"

#include <algorithm>
#include <cstring>

namespace gt {

using namespace values;

float values::largest(const float * x, int64_t n) {
    uint32_t max = 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
        max                 = bits > max ? bits : max;
    }
    return std::bit_cast<float>(max);
}

bool values::is_zero(const uint8_t * bytes, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

// IEEE half, rounded to nearest even. REQUIRES: |x| < 65520.
static uint16_t to_half(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t       mag  = bits & 0x7fffffffu;
    if (mag < 0x38800000u) {  // below the smallest normal half: a multiple of 2^-24
        const float shifted = std::bit_cast<float>(mag) + 0.5f;  // the addition rounds
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
    mag += 0xfffu + (mag >> 13 & 1);
    return static_cast<uint16_t>(sign | ((mag - 0x38000000u) >> 13));
}

static float from_half(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    const uint32_t mag  = h & 0x7fffu;
    if (mag < 0x400u) {
        const float x = static_cast<float>(mag) * 0x1p-24f;
        return std::bit_cast<float>(std::bit_cast<uint32_t>(x) | sign);
    }
    return std::bit_cast<float>(((mag << 13) + 0x38000000u) | sign);
}

static float power_of_two(int exponent) {
    return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

int64_t group_bytes(Wire wire, Group kind, int64_t n) {
    const int64_t head = kind == Group::sparse ? 3 : 2;
    switch (wire) {
        case Wire::fp32:
            return 4 * n;
        case Wire::fp16:
            return 1 + 2 * n;
        case Wire::q8:
            return 2 + n;
        case Wire::q4:
            return head + code_bytes(n, 4);
        case Wire::q2:
            return kind == Group::dense ? 1 + ternary_bytes(n) : head + code_bytes(n, 2);
        case Wire::q1:
            return 1 + code_bytes(n, 1);
    }
    GT_CHECK(false, "unknown wire type");
}

// --- fp32 and fp16 ---------------------------------------------------------------------------------

static const char * decode_fp32(const uint8_t * in, int64_t n, float * x) {
    std::memcpy(x, in, n * sizeof(float));
    return largest(x, n) <= kHuge ? nullptr : kBadValue;
}

static void encode_fp16(const float * x, int64_t n, uint8_t * out, float * restored) {
    const float max = largest(x, n);
    const int   e   = !(max < kHuge) ? 255
                      : max < kTiny  ? 0
                                     : static_cast<int>(std::bit_cast<uint32_t>(max) >> 23);
    out[0]          = static_cast<uint8_t>(e);
    if (e == 0 || e == 255) {
        std::memset(out + 1, 0, 2 * n);
        std::memset(restored, 0, n * sizeof(float));
        return;
    }
    const float up = power_of_two(141 - e), down = power_of_two(e - 141);
    for (int64_t i = 0; i < n; ++i) {
        const uint16_t h = to_half(x[i] * up);  // below 2^15
        put(out + 1 + 2 * i, h);
        restored[i] = from_half(h) * down;
    }
}

static const char * decode_fp16(const uint8_t * in, int64_t n, float * x) {
    const int e = in[0];
    if (e == 0) {
        std::memset(x, 0, n * sizeof(float));
        return is_zero(in + 1, 2 * n) ? nullptr : kBadCode;
    }
    if (e < 127 - 80 || e > 127 + 29) {
        return kBadScale;
    }
    const float down = power_of_two(e - 141);
    bool        bad  = false;
    for (int64_t i = 0; i < n; ++i) {
        const auto h = get<uint16_t>(in + 1 + 2 * i);
        bad |= (h & 0x7fffu) > 0x7800u;  // beyond 2^15
        x[i] = from_half(h) * down;
    }
    return bad ? kBadValue : nullptr;
}

// --- any type --------------------------------------------------------------------------------------

static bool is_linear(Wire wire, Group kind) {
    return wire == Wire::q8 || kind == Group::dense;
}
static bool is_ternary(Wire wire, Group kind) {
    return wire == Wire::q2 && kind == Group::dense;
}

void encode_group(
    Wire wire, Group kind, const float * x, int64_t n, uint8_t * out, float * restored
) {
    if (wire == Wire::fp32) {
        std::memcpy(out, x, n * sizeof(float));
        std::memmove(restored, x, n * sizeof(float));
    } else if (wire == Wire::fp16) {
        encode_fp16(x, n, out, restored);
    } else if (wire == Wire::q1) {
        encode_signs(x, n, out, restored);
    } else if (is_ternary(wire, kind)) {
        encode_ternary(x, n, out, restored);
    } else if (is_linear(wire, kind)) {
        encode_linear(wire, x, n, out, restored);
    } else {
        encode_levels(wire, x, n, out, restored);
    }
}

const char * decode_group(Wire wire, Group kind, const uint8_t * in, int64_t n, float * x) {
    if (wire == Wire::fp32) {
        return decode_fp32(in, n, x);
    }
    if (wire == Wire::fp16) {
        return decode_fp16(in, n, x);
    }
    if (wire == Wire::q1) {
        return decode_signs(in, n, x);
    }
    if (is_ternary(wire, kind)) {
        return decode_ternary(in, n, x);
    }
    return is_linear(wire, kind) ? decode_linear(wire, in, n, x) : decode_levels(wire, in, n, x);
}

int64_t dense_bytes(Wire wire, int64_t n) {
    const int64_t group = dense_group(wire), tail = n % group;
    return n / group * group_bytes(wire, Group::dense, group) +
           (tail > 0 ? group_bytes(wire, Group::dense, tail) : 0);
}

std::vector<double> clip_scales(std::span<const double> norms, float clip) {
    std::vector<double> scales(norms.size(), 1.0), positive(norms.begin(), norms.end());
    std::erase(positive, 0.0);
    if (clip <= 0.0f || positive.empty()) {
        return scales;
    }
    const auto middle = positive.begin() + static_cast<ptrdiff_t>((positive.size() - 1) / 2);
    std::nth_element(positive.begin(), middle, positive.end());
    const double most = static_cast<double>(clip) * *middle;
    for (size_t i = 0; i < norms.size(); ++i) {
        scales[i] = norms[i] > most ? most / norms[i] : 1.0;
    }
    return scales;
}

void mean_of_group(
    Wire wire, std::span<const Piece> pieces, int64_t offset, int64_t n, double total, float * mean
) {
    float  x[kLargestGroup];
    double sum[kLargestGroup] = {};
    for (const Piece & piece : pieces) {
        const char * why = decode_group(wire, Group::dense, piece.bytes + offset, n, x);
        GT_CHECK(why == nullptr, "a piece was not checked");
        const double factor = piece.weight * piece.scale;
        for (int64_t i = 0; i < n; ++i) {
            sum[i] = sum[i] + factor * static_cast<double>(x[i]);
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        mean[i] = static_cast<float>(sum[i] / total);
    }
}

}  // namespace gt
