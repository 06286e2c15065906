// ggml-train/cuda/wire.cuh — a chunk's values and indices <-> bytes. The formats are those of
// optim/wire/values.h (kind sparse) and optim/wire/indices.h; the arithmetic is that of values.cpp.
#pragma once

#include "ggml-train/cuda/exact.cuh"

namespace gt::cuda {

enum WireType { kFp32 = 0, kFp16, kQ8, kQ4, kQ2 };

constexpr float    kWireTiny = 0x1p-80f, kWireHuge = 0x1p30f;
constexpr int      kWireMinR = 31;
constexpr unsigned kRefused  = 0x7f80;

__device__ inline unsigned wire_scale(float x) {
    return !(x <= kWireHuge) ? kRefused : x < kWireTiny ? 0 : (__float_as_uint(x) + 0xffffu) >> 16;
}
__device__ inline float power_of_two(int exponent) {
    return __uint_as_float(unsigned(exponent + 127) << 23);
}

__device__ inline unsigned to_half(float x) {
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u;
    unsigned       mag = bits & 0x7fffffffu;
    if (mag < 0x38800000u) {
        return sign | (__float_as_uint(add(__uint_as_float(mag), 0.5f)) - 0x3f000000u);
    }
    mag += 0xfffu + (mag >> 13 & 1);
    return sign | ((mag - 0x38000000u) >> 13);
}
__device__ inline float from_half(unsigned h) {
    const unsigned sign = (h & 0x8000u) << 16, mag = h & 0x7fffu;
    return mag < 0x400u ? __uint_as_float(__float_as_uint(mul(float(mag), 0x1p-24f)) | sign)
                        : __uint_as_float(((mag << 13) + 0x38000000u) | sign);
}

// The parameters shared by a chunk's values.
struct WireHead {
    unsigned s, r;   // fp16: s is e
    float    up;     // fp16: factor; q8: 1 / step
    float    at[8];  // q4, q2: levels; fp16, q8: at[0] turns a code into a value
};

// Level 0, and each next one `ratio` times that.
__device__ inline void make_levels(int wire, WireHead & head) {
    const float ratio = mul(float(int(head.r) + 1), 1.0f / 256.0f),
                scale = __uint_as_float(head.s << 16);
    head.at[0]        = wire == kQ4 ? mul(scale, root(ratio)) : scale;
    for (int i = 1; i < 8; ++i) {
        head.at[i] = mul(head.at[i - 1], ratio);
    }
}

// Scale and ratio of a group for q4 and q2.
__device__ inline void fit_levels(int wire, const float * x, int n, float max, WireHead & head) {
    float ratio = 1.0f;
    if (wire == kQ4) {
        float min = max;
        for (int i = 0; i < n; ++i) {
            min = magnitude(x[i]) < min ? magnitude(x[i]) : min;
        }
        ratio = root(root(root(quotient(min, max))));
    } else {
        float sum = 0.0f, high = 0.0f, n_high = 0.0f;
        for (int i = 0; i < n; ++i) {
            sum = add(sum, magnitude(x[i]));
        }
        const float mean = quotient(sum, float(n));
        for (int i = 0; i < n; ++i) {
            if (magnitude(x[i]) >= mean) {
                high   = add(high, magnitude(x[i]));
                n_high = add(n_high, 1.0f);
            }
        }
        const float n_low = sub(float(n), n_high);
        max               = n_high > 0.0f ? quotient(high, n_high) : max;
        ratio = n_low > 0.0f && sum > high ? quotient(quotient(sub(sum, high), n_low), max) : 1.0f;
    }
    const int code = int(mul(ratio, 256.0f)) - 1;
    head.s         = wire_scale(max);
    head.r         = unsigned(code < kWireMinR ? kWireMinR : code > 255 ? 255 : code);
}

// For one thread: writes the head of a group's bytes. s = 0 or kRefused (fp16: 0 or 255): all zero.
__device__ inline WireHead make_head(int wire, const float * x, int n) {
    WireHead head{};
    unsigned top = 0;
    for (int i = 0; i < n; ++i) {
        top = magnitude_bits(x[i]) > top ? magnitude_bits(x[i]) : top;
    }
    const float max = __uint_as_float(top);
    if (wire == kFp16) {
        head.s = !(max < kWireHuge) ? 255 : max < kWireTiny ? 0 : top >> 23;
        if (head.s != 0 && head.s != 255) {
            head.up    = power_of_two(141 - int(head.s));
            head.at[0] = power_of_two(int(head.s) - 141);
        }
    } else if (wire != kFp32) {
        head.s = wire_scale(max);
        if (head.s != 0 && head.s != kRefused) {
            if (wire == kQ8) {
                head.at[0] = quotient(__uint_as_float(head.s << 16), 127.0f);
                head.up    = quotient(1.0f, head.at[0]);
            } else {
                fit_levels(wire, x, n, max, head);
                make_levels(wire, head);
            }
        }
    }
    return head;
}

// The code of a value, and the value that a receiver decodes. REQUIRES: the group is neither zero nor refused.
__device__ inline unsigned wire_code(int wire, const WireHead & head, float x, float & restored) {
    if (wire == kFp16) {
        const unsigned h = to_half(mul(x, head.up));
        restored         = mul(from_half(h), head.at[0]);
        return h;
    }
    if (wire == kQ8) {
        float t     = mul(x, head.up);
        t           = t > 127.0f ? 127.0f : t < -127.0f ? -127.0f : t;
        const int i = int(add(t, t < 0.0f ? -0.5f : 0.5f));
        restored    = mul(float(i), head.at[0]);
        return unsigned(i) & 255u;
    }
    const int n_edges = wire == kQ4 ? 7 : 1;
    unsigned  level   = 0;
    for (int e = 0; e < n_edges; ++e) {
        level += magnitude(x) < mul(0.5f, add(head.at[e], head.at[e + 1])) ? 1u : 0u;
    }
    const unsigned sign = __float_as_uint(x) >> 31;
    restored            = sign != 0 ? -head.at[level] : head.at[level];
    return sign << (wire == kQ4 ? 3 : 1) | level;
}

// Value i of n that a group's bytes hold. REQUIRES: the bytes were checked.
__device__ inline float wire_value(int wire, const uint8_t * in, int i) {
    if (wire == kFp32) {
        return __uint_as_float(
            in[4 * i] | in[4 * i + 1] << 8 | in[4 * i + 2] << 16 | unsigned(in[4 * i + 3]) << 24
        );
    }
    if (wire == kFp16) {
        return in[0] == 0 ? 0.0f
                          : mul(from_half(in[1 + 2 * i] | in[2 + 2 * i] << 8),
                                power_of_two(int(in[0]) - 141));
    }
    WireHead head{};
    head.s = in[0] | in[1] << 8;
    if (head.s == 0) {
        return 0.0f;
    }
    if (wire == kQ8) {
        return mul(float(int(int8_t(in[2 + i]))), quotient(__uint_as_float(head.s << 16), 127.0f));
    }
    head.r = in[2];
    make_levels(wire, head);
    const int      bits = wire == kQ4 ? 4 : 2, at = i * bits;
    const unsigned code  = unsigned(in[3 + at / 8]) >> at % 8 & ((1u << bits) - 1u);
    const unsigned level = code & ((1u << (bits - 1)) - 1u);
    const float    v     = head.at[level];
    return code >> (bits - 1) != 0 ? -v : v;
}

// Byte b of a group, from its codes; heads as in optim/wire/values.h.
__device__ inline unsigned
wire_byte(int wire, const WireHead & head, const uint16_t * code, int n, int b) {
    if (wire == kFp16) {
        return b == 0 ? head.s : unsigned(code[(b - 1) / 2]) >> (b - 1) % 2 * 8 & 255u;
    }
    if (b < 2) {
        return head.s >> 8 * b & 255u;
    }
    if (wire == kQ8) {
        return code[b - 2];
    }
    if (b == 2) {
        return head.r;
    }
    const int bits = wire == kQ4 ? 4 : 2, per = 8 / bits;
    unsigned  byte = 0;
    for (int j = 0; j < per; ++j) {
        const int i = (b - 3) * per + j;
        byte |= i < n ? unsigned(code[i]) << j * bits : 0;
    }
    return byte;
}

// For a whole block: values x [n], in shared memory, become bytes, then the values that receivers decode.
// `code` [n] and `head` are shared scratch. Starts and ends with a barrier.
__device__ inline void encode_values(
    int wire, float * x, int n, int n_bytes, uint16_t * code, WireHead * head, uint8_t * out
) {
    __syncthreads();
    if (threadIdx.x == 0) {
        *head = make_head(wire, x, n);
    }
    __syncthreads();
    if (wire == kFp32) {
        for (int b = threadIdx.x; b < 4 * n; b += kThreads) {
            out[b] = uint8_t(__float_as_uint(x[b / 4]) >> b % 4 * 8);
        }
        __syncthreads();
        return;
    }
    const bool nothing = head->s == 0 || head->s == (wire == kFp16 ? 255u : kRefused);
    for (int i = threadIdx.x; i < n; i += kThreads) {
        float restored = 0.0f;
        code[i]        = uint16_t(nothing ? 0 : wire_code(wire, *head, x[i], restored));
        x[i]           = restored;
    }
    __syncthreads();
    for (int b = threadIdx.x; b < n_bytes; b += kThreads) {
        out[b] = uint8_t(wire_byte(wire, *head, code, n, b));
    }
    __syncthreads();
}

// For a whole block: n ascending indices to bytes. `words` is shared scratch of that many bytes,
// rounded up. Starts and ends with a barrier.
__device__ inline void encode_indices(
    int low, const uint16_t * index, int n, int n_bytes, unsigned * words, uint8_t * out
) {
    for (int w = threadIdx.x; w < (n_bytes + 3) / 4; w += kThreads) {
        words[w] = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n && n_bytes > 0; i += kThreads) {
        for (int b = 0; b < low; ++b) {  // low bits
            const int at = i * low + b;
            if (index[i] >> b & 1) {
                atomicOr(&words[at / 32], 1u << at % 32);
            }
        }
        const int at = low < 0 ? index[i] : n * low + (index[i] >> low) + i;
        atomicOr(&words[at / 32], 1u << at % 32);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < n_bytes; b += kThreads) {
        out[b] = uint8_t(words[b / 4] >> b % 4 * 8);
    }
    __syncthreads();
}

// For one thread: the indices that `n_bytes` of bytes hold. REQUIRES: the bytes were checked.
__device__ inline void
decode_indices(int low, const uint8_t * in, int n, int n_bytes, uint16_t * index) {
    if (low == -2) {
        for (int i = 0; i < n; ++i) {
            index[i] = uint16_t(i);
        }
        return;
    }
    const int begin = low < 0 ? 0 : n * low;
    int       count = 0;
    for (int byte = begin / 8; byte < n_bytes && count < n; ++byte) {
        unsigned bits = in[byte];
        if (byte == begin / 8) {
            bits &= 255u << begin % 8;
        }
        for (; bits != 0 && count < n; bits &= bits - 1) {
            unsigned value = unsigned(byte * 8 + __ffs(int(bits)) - 1 - begin);
            if (low >= 0) {
                unsigned lower = 0;
                for (int b = 0; b < low; ++b) {
                    const int at = count * low + b;
                    lower |= (unsigned(in[at / 8]) >> at % 8 & 1u) << b;
                }
                value = (value - unsigned(count)) << low | lower;
            }
            index[count++] = uint16_t(value);
        }
    }
}

}  // namespace gt::cuda
