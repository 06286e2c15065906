#include "optim/values.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace gt {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

static constexpr float    kTiny    = 0x1p-80f;
static constexpr float    kHuge    = 0x1p30f;
static constexpr int      kMinR    = 31;
static constexpr uint16_t kRefused = 0x7f80;  // infinity

static const char * const kBadScale = "a scale is not finite or out of range";
static const char * const kBadValue = "a value is not finite or out of range";
static const char * const kBadCode  = "a code that no sender writes";

static float magnitude(float x) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu);
}

// The largest magnitude; not a number if one of them is not.
static float largest(const float * x, int64_t n) {
    uint32_t max = 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
        max                 = bits > max ? bits : max;
    }
    return std::bit_cast<float>(max);
}

// The upper half of a float, rounded up, so that the scale is never below what it scales.
static uint16_t encode_scale(float x) {
    if (!(x <= kHuge)) {
        return kRefused;
    }
    return x < kTiny ? 0 : static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + 0xffffu) >> 16);
}

static float decode_scale(uint16_t s) {
    return std::bit_cast<float>(static_cast<uint32_t>(s) << 16);
}

static bool scale_is_good(uint16_t s) {
    const float x = decode_scale(s);
    return s == 0 || (s < kRefused && x >= kTiny && x <= kHuge);
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

// Codes of `bits` bits, low bits first.
static void put_code(uint8_t * out, int64_t i, int bits, uint32_t code) {
    const int64_t at = i * bits;
    out[at >> 3] |= static_cast<uint8_t>(code << (at & 7));
}

static uint32_t get_code(const uint8_t * in, int64_t i, int bits) {
    const int64_t at = i * bits;
    return in[at >> 3] >> (at & 7) & ((1u << bits) - 1u);
}

static int64_t code_bytes(int64_t n, int bits) {
    return (n * bits + 7) / 8;
}

static bool is_zero(const uint8_t * bytes, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

int64_t group_bytes(Wire wire, Group kind, int64_t n) {
    const int64_t head = kind == Group::sparse ? 3 : 2;
    switch (wire) {
        case Wire::fp32: return 4 * n;
        case Wire::fp16: return 1 + 2 * n;
        case Wire::q8: return 2 + n;
        case Wire::q4: return head + code_bytes(n, 4);
        case Wire::q2: return head + code_bytes(n, 2);
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
        std::memcpy(out + 1 + 2 * i, &h, 2);
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
        uint16_t h = 0;
        std::memcpy(&h, in + 1 + 2 * i, 2);
        bad |= (h & 0x7fffu) > 0x7800u;  // beyond 2^15
        x[i] = from_half(h) * down;
    }
    return bad ? kBadValue : nullptr;
}

// --- linear levels: q8, and q4 and q2 of dense groups ----------------------------------------------

// Codes are k + offset, |k| <= top; value = k * (s / top).
struct Linear {
    int bits, top, offset;
};

static Linear linear(Wire wire) {
    return wire == Wire::q8 ? Linear{8, 127, 0} : wire == Wire::q4 ? Linear{4, 7, 8} : Linear{2, 1, 2};
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

static void encode_linear(Wire wire, const float * x, int64_t n, uint8_t * out, float * restored) {
    const Linear q   = linear(wire);
    float        max = largest(x, n);
    if (wire == Wire::q2 && max <= kHuge) {
        max = ternary_scale(x, n);
    }
    const uint16_t s = encode_scale(max);
    std::memcpy(out, &s, 2);
    std::memset(out + 2, 0, code_bytes(n, q.bits));
    if (s == 0 || s == kRefused) {
        std::memset(restored, 0, n * sizeof(float));
        return;
    }
    const float top = static_cast<float>(q.top), step = decode_scale(s) / top;
    const float inverse = 1.0f / step;
    for (int64_t i = 0; i < n; ++i) {
        float t  = x[i] * inverse;
        t        = t > top ? top : t < -top ? -top : t;
        const int k = static_cast<int>(t + (t < 0.0f ? -0.5f : 0.5f));
        restored[i] = static_cast<float>(k) * step;
        if (q.bits == 8) {
            out[2 + i] = static_cast<uint8_t>(k);
        } else {
            put_code(out + 2, i, q.bits, static_cast<uint32_t>(k + q.offset));
        }
    }
}

static const char * decode_linear(Wire wire, const uint8_t * in, int64_t n, float * x) {
    const Linear q = linear(wire);
    uint16_t     s = 0;
    std::memcpy(&s, in, 2);
    if (!scale_is_good(s)) {
        return kBadScale;
    }
    if (s == 0) {
        std::memset(x, 0, n * sizeof(float));
        return is_zero(in + 2, code_bytes(n, q.bits)) ? nullptr : kBadCode;
    }
    const float step = decode_scale(s) / static_cast<float>(q.top);
    bool        bad  = false;
    if (q.bits == 8) {
        for (int64_t i = 0; i < n; ++i) {
            const int k = static_cast<int8_t>(in[2 + i]);
            bad |= k == -128;
            x[i] = static_cast<float>(k) * step;
        }
        return bad ? kBadCode : nullptr;
    }
    for (int64_t i = 0; i < n; ++i) {
        const int k = static_cast<int>(get_code(in + 2, i, q.bits)) - q.offset;
        bad |= k < -q.top;
        x[i] = static_cast<float>(k) * step;
    }
    const int64_t n_codes = code_bytes(n, q.bits) * 8 / q.bits;
    for (int64_t i = n; i < n_codes; ++i) {
        bad |= get_code(in + 2, i, q.bits) != 0;
    }
    return bad ? kBadCode : nullptr;
}

// --- sign and falling levels: q4 and q2 of sparse groups --------------------------------------------

struct Levels {
    float at[8];
    float edge[8];  // between level i and i + 1
};

static Levels make_levels(Wire wire, float scale, uint8_t r) {
    const float ratio = static_cast<float>(r + 1) * (1.0f / 256.0f);
    Levels      levels;
    levels.at[0] = wire == Wire::q4 ? scale * std::sqrt(ratio) : scale;
    for (int i = 1; i < 8; ++i) {
        levels.at[i]       = levels.at[i - 1] * ratio;
        levels.edge[i - 1] = 0.5f * (levels.at[i - 1] + levels.at[i]);
    }
    return levels;
}

// Picks scale and ratio: q4 covers [min, max] in eight cells of equal ratio; q2 takes the means of
// the magnitudes above and below their mean.
static void fit_levels(Wire wire, const float * x, int64_t n, float max, uint16_t & s, uint8_t & r) {
    float ratio = 1.0f;
    if (wire == Wire::q4) {
        float min = max;
        for (int64_t i = 0; i < n; ++i) {
            min = magnitude(x[i]) < min ? magnitude(x[i]) : min;
        }
        ratio = std::sqrt(std::sqrt(std::sqrt(min / max)));
    } else {
        float sum = 0.0f, high = 0.0f, n_high = 0.0f;
        for (int64_t i = 0; i < n; ++i) {
            sum += magnitude(x[i]);
        }
        const float mean = sum / static_cast<float>(n);
        for (int64_t i = 0; i < n; ++i) {
            if (magnitude(x[i]) >= mean) {
                high += magnitude(x[i]);
                n_high += 1.0f;
            }
        }
        const float n_low = static_cast<float>(n) - n_high;
        max               = n_high > 0.0f ? high / n_high : max;
        ratio             = n_low > 0.0f && sum > high ? (sum - high) / n_low / max : 1.0f;
    }
    const int code = static_cast<int>(ratio * 256.0f) - 1;
    s              = encode_scale(max);
    r              = static_cast<uint8_t>(code < kMinR ? kMinR : code > 255 ? 255 : code);
}

// Codes of n values, and what they stand for. REQUIRES: out is zero.
template <int kBits>
static void
write_levels(const Levels & levels, const float * x, int64_t n, uint8_t * out, float * restored) {
    constexpr int kEdges = (1 << (kBits - 1)) - 1, kPerByte = 8 / kBits;
    constexpr int64_t kBlock = 64;
    uint32_t          code[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t count = n - begin < kBlock ? n - begin : kBlock;
        for (int64_t i = 0; i < count; ++i) {
            const float mag   = magnitude(x[begin + i]);
            uint32_t    level = 0;
            for (int e = 0; e < kEdges; ++e) {
                level += mag < levels.edge[e] ? 1u : 0u;
            }
            code[i] = std::bit_cast<uint32_t>(x[begin + i]) >> 31 << (kBits - 1) | level;
        }
        for (int64_t i = 0; i < count; ++i) {
            const float value   = levels.at[code[i] & kEdges];
            restored[begin + i] = code[i] > kEdges ? -value : value;
            out[(begin + i) / kPerByte] |=
                static_cast<uint8_t>(code[i] << (begin + i) % kPerByte * kBits);
        }
    }
}

static void encode_levels(Wire wire, const float * x, int64_t n, uint8_t * out, float * restored) {
    const int   bits = wire == Wire::q4 ? 4 : 2;
    const float max  = largest(x, n);
    uint16_t    s    = encode_scale(max);
    uint8_t     r    = 0;
    std::memset(out, 0, 3 + code_bytes(n, bits));
    if (s != 0 && s != kRefused) {
        fit_levels(wire, x, n, max, s, r);
    }
    std::memcpy(out, &s, 2);
    out[2] = r;
    if (s == 0 || s == kRefused) {
        out[2] = 0;
        std::memset(restored, 0, n * sizeof(float));
        return;
    }
    const Levels levels = make_levels(wire, decode_scale(s), r);
    if (bits == 4) {
        write_levels<4>(levels, x, n, out + 3, restored);
    } else {
        write_levels<2>(levels, x, n, out + 3, restored);
    }
}

static const char * decode_levels(Wire wire, const uint8_t * in, int64_t n, float * x) {
    const int bits = wire == Wire::q4 ? 4 : 2;
    uint16_t  s    = 0;
    std::memcpy(&s, in, 2);
    if (!scale_is_good(s)) {
        return kBadScale;
    }
    if (s == 0) {
        std::memset(x, 0, n * sizeof(float));
        return is_zero(in + 2, 1 + code_bytes(n, bits)) ? nullptr : kBadCode;
    }
    if (in[2] < kMinR) {
        return kBadScale;
    }
    const Levels levels = make_levels(wire, decode_scale(s), in[2]);
    float        value[16];
    const int    half = 1 << (bits - 1);
    for (int i = 0; i < half; ++i) {
        value[i]        = levels.at[i];
        value[half + i] = -levels.at[i];
    }
    if (bits == 4) {
        for (int64_t i = 0; i < n; ++i) {
            x[i] = value[get_code(in + 3, i, 4)];
        }
    } else {
        for (int64_t i = 0; i < n; ++i) {
            x[i] = value[get_code(in + 3, i, 2)];
        }
    }
    bool          bad     = false;
    const int64_t n_codes = code_bytes(n, bits) * 8 / bits;
    for (int64_t i = n; i < n_codes; ++i) {
        bad |= get_code(in + 3, i, bits) != 0;
    }
    return bad ? kBadCode : nullptr;
}

// --- all of them -----------------------------------------------------------------------------------

static bool is_linear(Wire wire, Group kind) {
    return wire == Wire::q8 || kind == Group::dense;
}

void encode_group(
    Wire wire, Group kind, const float * x, int64_t n, uint8_t * out, float * restored
) {
    if (wire == Wire::fp32) {
        std::memcpy(out, x, n * sizeof(float));
        std::memmove(restored, x, n * sizeof(float));
    } else if (wire == Wire::fp16) {
        encode_fp16(x, n, out, restored);
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
    return is_linear(wire, kind) ? decode_linear(wire, in, n, x) : decode_levels(wire, in, n, x);
}

}  // namespace gt
