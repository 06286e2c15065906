#include "optim/math/topk.h"

#include <algorithm>
#include <bit>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace gt {

// The bits of |x|, which sort like magnitudes.
static uint32_t magnitude_bits(float x) {
    return std::bit_cast<uint32_t>(x) & 0x7fffffffu;
}

static int64_t count_from(const uint32_t * bits, int64_t n, uint32_t bound) {
    uint32_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
        count += bits[i] >= bound ? 1u : 0u;
    }
    return count;
}

// The k-th largest of n.
static uint32_t kth_largest(const uint32_t * bits, int64_t n, int64_t k) {
    uint32_t found = 0;
    for (int bit = 30; bit >= 0; --bit) {
        const uint32_t higher = found | 1u << bit;
        if (count_from(bits, n, higher) >= k) {
            found = higher;
        }
    }
    return found;
}

// Sixteen magnitudes. They are below 2^31, so signed comparison works.
// The loose form is at any address.
using Sixteen = int32_t __attribute__((vector_size(64)));
typedef int32_t LooseSixteen __attribute__((vector_size(64), aligned(4), may_alias));

// maxima[i] = the largest magnitude of x[i], x[i + G], x[i + 2 G], ...
template <int64_t G>
static void group_maxima(const float * x, int64_t n, uint32_t * maxima) {
    Sixteen best[G / 16] = {};
    for (int64_t begin = 0; begin + G <= n; begin += G) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < G / 16; ++i) {
            const Sixteen bits =
                *reinterpret_cast<const LooseSixteen *>(x + begin + 16 * i) & 0x7fffffff;
            best[i] = best[i] > bits ? best[i] : bits;
        }
    }
    for (int64_t i = 0; i < G / 16; ++i) {
        *reinterpret_cast<LooseSixteen *>(maxima + 16 * i) = best[i];
    }
}

// A magnitude that at least k elements reach: about the k-th largest of the maxima of groups.
static uint32_t lower_bound(const float * x, int64_t n, int64_t k, TopKScratch & scratch) {
    int64_t n_groups = 32;
    while (n_groups < 4 * k) {
        n_groups *= 2;
    }
    if (n_groups > 512 || n < 4 * n_groups) {
        return 0;
    }
    scratch.maxima.resize(n_groups);
    uint32_t * maxima = scratch.maxima.data();
    switch (n_groups) {
        case 32:
            group_maxima<32>(x, n, maxima);
            break;
        case 64:
            group_maxima<64>(x, n, maxima);
            break;
        case 128:
            group_maxima<128>(x, n, maxima);
            break;
        case 256:
            group_maxima<256>(x, n, maxima);
            break;
        default:
            group_maxima<512>(x, n, maxima);
            break;
    }
    uint32_t low = 0xffffffffu, high = 0;
    for (int64_t i = 0; i < n_groups; ++i) {
        low  = maxima[i] < low ? maxima[i] : low;
        high = maxima[i] > high ? maxima[i] : high;
    }
    for (int i = 0; i < 8 && low < high; ++i) {  // invariant: at least k maxima reach `low`
        const uint32_t middle = low + (high - low + 1) / 2;
        if (count_from(maxima, n_groups, middle) >= k) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// Collects the elements of at least `bound`, by ascending index; returns their number.
static int64_t candidates(const float * x, int64_t n, uint32_t bound, TopKScratch & scratch) {
    scratch.bits.resize(n);
    scratch.index.resize(n);
    uint32_t * bits  = scratch.bits.data();
    uint16_t * index = scratch.index.data();
    int64_t    found = 0, i = 0;
    const auto take = [&](int64_t at) {
        bits[found]    = magnitude_bits(x[at]);
        index[found++] = static_cast<uint16_t>(at);
    };
#if defined(__AVX512F__)
    const __m512i floor   = _mm512_set1_epi32(static_cast<int>(bound));
    const __m512i mask    = _mm512_set1_epi32(0x7fffffff);
    const auto    hits_of = [&](int64_t at) -> uint64_t {
        return _mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_loadu_si512(x + at), mask), floor);
    };
    for (; i + 64 <= n; i += 64) {
        uint64_t hits =
            hits_of(i) | hits_of(i + 16) << 16 | hits_of(i + 32) << 32 | hits_of(i + 48) << 48;
        for (; hits != 0; hits &= hits - 1) {
            take(i + std::countr_zero(hits));
        }
    }
#elif defined(__AVX2__)
    // magnitudes are below 2^31, so signed comparison works
    const __m256i below   = _mm256_set1_epi32(static_cast<int>(bound) - 1);
    const __m256i mask    = _mm256_set1_epi32(0x7fffffff);
    const auto    hits_of = [&](int64_t at) {
        const auto *  from = reinterpret_cast<const __m256i *>(x + at);
        const __m256i some = _mm256_and_si256(_mm256_loadu_si256(from), mask);
        const __m256i over = _mm256_cmpgt_epi32(some, below);
        return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(over)));
    };
    for (; i + 32 <= n; i += 32) {
        uint32_t hits =
            hits_of(i) | hits_of(i + 8) << 8 | hits_of(i + 16) << 16 | hits_of(i + 24) << 24;
        for (; hits != 0; hits &= hits - 1) {
            take(i + std::countr_zero(hits));
        }
    }
#endif
    for (; i < n; ++i) {
        if (magnitude_bits(x[i]) >= bound) {
            take(i);
        }
    }
    return found;
}

static constexpr uint32_t kDropped = 0xffffffffu;  // larger than any magnitude

// Marks the n_drop smallest; of equal ones, the last.
static void drop_smallest(uint32_t * bits, int64_t n, int64_t n_drop) {
    for (; n_drop > 0; --n_drop) {
        uint32_t least = kDropped;
        for (int64_t i = 0; i < n; ++i) {
            least = bits[i] < least ? bits[i] : least;
        }
        int64_t at = n - 1;
        while (bits[at] != least) {
            --at;
        }
        bits[at] = kDropped;
    }
}

void top_k(const float * x, int64_t n, int64_t k, uint16_t * index, TopKScratch & scratch) {
    if (k == n) {
        for (int64_t i = 0; i < n; ++i) {
            index[i] = static_cast<uint16_t>(i);
        }
        return;
    }
    const int64_t n_found = candidates(x, n, lower_bound(x, n, k, scratch), scratch);
    uint32_t *    bits    = scratch.bits.data();
    if (n_found - k <= 48) {
        drop_smallest(bits, n_found, n_found - k);
        for (int64_t i = 0, out = 0; out < k; ++i) {
            index[out] = scratch.index[i];
            out += bits[i] != kDropped ? 1 : 0;
        }
        return;
    }
    // of the elements equal to the k-th, take the first ones
    const uint32_t last    = kth_largest(bits, n_found, k);
    int64_t        n_equal = k - count_from(bits, n_found, last + 1);
    for (int64_t i = 0, out = 0; out < k; ++i) {
        const bool equal = bits[i] == last;
        if (bits[i] > last || (equal && n_equal > 0)) {
            index[out++] = scratch.index[i];
            n_equal -= equal ? 1 : 0;
        }
    }
}

}  // namespace gt
