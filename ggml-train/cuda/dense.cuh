// ggml-train/cuda/dense.cuh — a group of neighbouring values <-> bytes: the formats of optim/wire/values.h (kind
// dense), with the arithmetic of quantize.cpp and signs.cpp.
#pragma once

#include "ggml-train/cuda/wire.cuh"

namespace gt::cuda {

constexpr int kQ1           = 5;    // in line with WireType
constexpr int kLargestGroup = 256;  // no more than a block's threads

__device__ inline bool has_scale_byte(int wire) {
    return wire == kQ1 || wire == kQ2;
}
__device__ inline int group_size(int wire) {
    return has_scale_byte(wire) ? kLargestGroup : 64;
}
// Codes are digits of base `radix`, `per_byte` in a byte, the lowest first.
__device__ inline int radix(int wire) {
    return wire == kQ4 ? 16 : wire == kQ2 ? 3 : 2;
}
__device__ inline int per_byte(int wire) {
    return wire == kQ4 ? 2 : wire == kQ2 ? 5 : 8;
}
__device__ inline int scale_bytes(int wire) {
    return has_scale_byte(wire) ? 1 : 2;
}
__device__ inline int group_bytes(int wire, int n) {
    return wire == kFp32   ? 4 * n
           : wire == kFp16 ? 1 + 2 * n
           : wire == kQ8   ? 2 + n
                           : scale_bytes(wire) + (n + per_byte(wire) - 1) / per_byte(wire);
}

// q2: the mean of the magnitudes above 0.7 of their mean.
__device__ inline float ternary_scale(const float * x, int n) {
    float sum = 0.0f, above = 0.0f, count = 0.0f;
    for (int i = 0; i < n; ++i) {
        sum = add(sum, magnitude(x[i]));
    }
    const float edge = quotient(mul(0.7f, sum), float(n));
    for (int i = 0; i < n; ++i) {
        if (magnitude(x[i]) > edge) {
            above = add(above, magnitude(x[i]));
            count = add(count, 1.0f);
        }
    }
    return count > 0.0f ? quotient(above, count) : 0.0f;
}

// q1: the mean of the magnitudes, summed in 16 lanes.
__device__ inline float mean_magnitude(const float * x, int n) {
    float total = 0.0f;
    for (int lane = 0; lane < 16; ++lane) {
        float sum = 0.0f;
        for (int i = lane; i < n; i += 16) {
            sum = add(sum, magnitude(x[i]));
        }
        total = add(total, sum);
    }
    return quotient(total, float(n));
}

// q1 and q2: the scale's byte: two bits of mantissa, 6 of the exponent.
constexpr unsigned kRefusedByte = 255, kZeroByte = 4 * (127 - 42);

__device__ inline unsigned scale_byte(float scale) {
    const unsigned upper = (__float_as_uint(scale) + 0x100000u) >> 21;
    return upper < kZeroByte                  ? 0
           : upper - kZeroByte < kRefusedByte ? upper - kZeroByte
                                              : kRefusedByte - 1;
}
// REQUIRES: s is neither 0 nor refused.
__device__ inline float scale_of_byte(unsigned s) {
    return __uint_as_float((s + kZeroByte) << 21);
}

__device__ inline bool is_nothing(int wire, unsigned s) {
    return s == 0 || s == (has_scale_byte(wire) ? kRefusedByte : kRefused);
}

// For one thread: the head of a group of q4, q2 or q1.
__device__ inline WireHead narrow_head(int wire, const float * x, int n) {
    WireHead head{};
    unsigned top = 0;
    for (int i = 0; i < n; ++i) {
        top = magnitude_bits(x[i]) > top ? magnitude_bits(x[i]) : top;
    }
    const float largest = __uint_as_float(top);
    if (!has_scale_byte(wire)) {
        head.s     = wire_scale(largest);
        head.at[0] = quotient(__uint_as_float(head.s << 16), 7.0f);
        head.up    = head.s == 0 ? 0.0f : quotient(1.0f, head.at[0]);
    } else if (largest <= kWireHuge) {
        head.s     = scale_byte(wire == kQ1 ? mean_magnitude(x, n) : ternary_scale(x, n));
        head.at[0] = scale_of_byte(head.s);
    } else {
        head.s = kRefusedByte;
    }
    return head;
}

// The code of a value, and the value that a receiver decodes. REQUIRES: the group is neither zero nor refused.
__device__ inline unsigned narrow_code(int wire, const WireHead & head, float x, float & restored) {
    if (wire == kQ1) {
        const unsigned negative = __float_as_uint(x) >> 31;
        restored                = negative != 0 ? -head.at[0] : head.at[0];
        return negative;
    }
    if (wire == kQ2) {
        const float edge = mul(0.5f, head.at[0]);
        const int   k    = x > edge ? 1 : x < -edge ? -1 : 0;
        restored         = mul(float(k), head.at[0]);
        return unsigned(k + 1);
    }
    float t     = mul(x, head.up);
    t           = t > 7.0f ? 7.0f : t < -7.0f ? -7.0f : t;
    const int k = int(add(t, t < 0.0f ? -0.5f : 0.5f));
    restored    = mul(float(k), head.at[0]);
    return unsigned(k + 8);
}

// For a whole block: values x [n], in shared memory, become bytes, then the values that receivers decode.
// `code` [n] and `head` are shared scratch. Starts and ends with a barrier.
__device__ inline void
encode_dense(int wire, float * x, int n, uint16_t * code, WireHead * head, uint8_t * out) {
    const int n_bytes = group_bytes(wire, n);
    if (wire == kFp32 || wire == kFp16 || wire == kQ8) {  // the same in both kinds of groups
        encode_values(wire, x, n, n_bytes, code, head, out);
        return;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        *head = narrow_head(wire, x, n);
    }
    __syncthreads();
    const bool nothing = is_nothing(wire, head->s);
    for (int i = threadIdx.x; i < n; i += kThreads) {
        float restored = 0.0f;
        code[i]        = uint16_t(nothing ? 0 : narrow_code(wire, *head, x[i], restored));
        x[i]           = restored;
    }
    __syncthreads();
    const int per = per_byte(wire), n_scale = scale_bytes(wire);
    for (int b = threadIdx.x; b < n_bytes; b += kThreads) {
        unsigned byte = b < n_scale ? head->s >> 8 * b : 0;
        for (int j = per - 1; b >= n_scale && j >= 0; --j) {
            const int i = (b - n_scale) * per + j;
            byte        = byte * radix(wire) + (i < n ? code[i] : 0);
        }
        out[b] = uint8_t(byte);
    }
    __syncthreads();
}

// Value i that a group's bytes hold. REQUIRES: the bytes were checked.
__device__ inline float dense_value(int wire, const uint8_t * in, int i) {
    if (wire == kFp32 || wire == kFp16 || wire == kQ8) {
        return wire_value(wire, in, i);
    }
    const unsigned s = has_scale_byte(wire) ? in[0] : in[0] | in[1] << 8;
    if (s == 0) {
        return 0.0f;
    }
    const int      per = per_byte(wire), at = i % per;
    const unsigned byte = in[scale_bytes(wire) + i / per];
    if (wire == kQ2) {
        const unsigned power = at == 0 ? 1 : at == 1 ? 3 : at == 2 ? 9 : at == 3 ? 27 : 81;
        return mul(float(int(byte / power % 3) - 1), scale_of_byte(s));
    }
    if (wire == kQ1) {
        return (byte >> at & 1u) != 0 ? -scale_of_byte(s) : scale_of_byte(s);
    }
    return mul(float(int(byte >> 4 * at & 15u) - 8), quotient(__uint_as_float(s << 16), 7.0f));
}

}  // namespace gt::cuda
