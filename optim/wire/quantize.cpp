#include "optim/wire/quantize.h"

#include "optim/wire/little-endian.h"

#include <cmath>
#include <cstring>

namespace gt::values {

static constexpr int kMinR = 31;

uint16_t encode_scale(float x) {
    if (!(x <= kHuge)) {
        return kRefused;
    }
    return x < kTiny ? 0 : static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + 0xffffu) >> 16);
}

float decode_scale(uint16_t s) {
    return std::bit_cast<float>(static_cast<uint32_t>(s) << 16);
}

bool is_valid_scale(uint16_t s) {
    const float x = decode_scale(s);
    return s == 0 || (s < kRefused && x >= kTiny && x <= kHuge);
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

// --- linear levels: q8, and q4 of dense groups -----------------------------------------------------

// Codes are k + offset, |k| <= top; value = k * (s / top).
struct Linear {
    int bits, top, offset;
};

static Linear linear(Wire wire) {
    return wire == Wire::q8 ? Linear{8, 127, 0} : Linear{4, 7, 8};
}

void encode_linear(Wire wire, const float * x, int64_t n, uint8_t * out, float * restored) {
    const Linear   q = linear(wire);
    const uint16_t s = encode_scale(largest(x, n));
    put(out, s);
    std::memset(out + 2, 0, code_bytes(n, q.bits));
    if (s == 0 || s == kRefused) {
        std::memset(restored, 0, n * sizeof(float));
        return;
    }
    const float top = static_cast<float>(q.top), step = decode_scale(s) / top;
    const float inverse = 1.0f / step;
    for (int64_t i = 0; i < n; ++i) {
        float t     = x[i] * inverse;
        t           = t > top ? top : t < -top ? -top : t;
        const int k = static_cast<int>(t + (t < 0.0f ? -0.5f : 0.5f));
        restored[i] = static_cast<float>(k) * step;
        if (q.bits == 8) {
            out[2 + i] = static_cast<uint8_t>(k);
        } else {
            put_code(out + 2, i, q.bits, static_cast<uint32_t>(k + q.offset));
        }
    }
}

const char * decode_linear(Wire wire, const uint8_t * in, int64_t n, float * x) {
    const Linear q = linear(wire);
    const auto   s = get<uint16_t>(in);
    if (!is_valid_scale(s)) {
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
            const int k = static_cast<int8_t>(in[2 + i]);  // NOLINT(bugprone-signed-char-misuse)
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
static void
fit_levels(Wire wire, const float * x, int64_t n, float max, uint16_t & s, uint8_t & r) {
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

// Codes of n values, and the values they decode to. REQUIRES: out is zero.
template <int kBits>
static void
write_levels(const Levels & levels, const float * x, int64_t n, uint8_t * out, float * restored) {
    constexpr int     kEdges = (1 << (kBits - 1)) - 1, kPerByte = 8 / kBits;
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

void encode_levels(Wire wire, const float * x, int64_t n, uint8_t * out, float * restored) {
    const int   bits = wire == Wire::q4 ? 4 : 2;
    const float max  = largest(x, n);
    uint16_t    s    = encode_scale(max);
    uint8_t     r    = 0;
    std::memset(out, 0, 3 + code_bytes(n, bits));
    if (s != 0 && s != kRefused) {
        fit_levels(wire, x, n, max, s, r);
    }
    put(out, s);
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

const char * decode_levels(Wire wire, const uint8_t * in, int64_t n, float * x) {
    const int  bits = wire == Wire::q4 ? 4 : 2;
    const auto s    = get<uint16_t>(in);
    if (!is_valid_scale(s)) {
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

}  // namespace gt::values
