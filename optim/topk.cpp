#include "optim/topk.h"

#include <algorithm>
#include <bit>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace gt {

// The bits of |x|: they order as magnitudes do.
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

// The k-th largest of n, its bits below `last_bit` left zero.
static uint32_t kth_largest(const uint32_t * bits, int64_t n, int64_t k, int last_bit) {
    uint32_t found = 0;
    for (int bit = 30; bit >= last_bit; --bit) {
        const uint32_t higher = found | 1u << bit;
        if (count_from(bits, n, higher) >= k) {
            found = higher;
        }
    }
    return found;
}

// A magnitude that at least k elements reach: about the k-th of the maxima of groups of elements.
static uint32_t lower_bound(const float * x, int64_t n, int64_t k, TopKScratch & scratch) {
    constexpr int64_t kMaxGroups = 1024;
    constexpr int     kCoarse    = 16;
    int64_t           n_groups   = 16;
    while (n_groups < 4 * k) {
        n_groups *= 2;
    }
    if (n_groups > kMaxGroups || n < 4 * n_groups) {
        return 0;
    }
    scratch.maxima.assign(n_groups, 0);
    uint32_t *    maxima = scratch.maxima.data();
    const int64_t n_full = n / n_groups * n_groups;
    for (int64_t begin = 0; begin < n_full; begin += n_groups) {
        for (int64_t i = 0; i < n_groups; ++i) {
            const uint32_t bits = magnitude_bits(x[begin + i]);
            maxima[i]           = maxima[i] > bits ? maxima[i] : bits;
        }
    }
    return kth_largest(maxima, n_groups, k, kCoarse);
}

// Collects the elements of at least `bound`, by ascending index; returns how many there are.
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
    const __m512i floor = _mm512_set1_epi32(static_cast<int>(bound));
    const __m512i mask  = _mm512_set1_epi32(0x7fffffff);
    for (; i + 16 <= n; i += 16) {
        const __m512i some = _mm512_and_si512(_mm512_loadu_si512(x + i), mask);
        for (uint32_t hits = _mm512_cmpge_epu32_mask(some, floor); hits != 0; hits &= hits - 1) {
            take(i + std::countr_zero(hits));
        }
    }
#elif defined(__AVX2__)
    // magnitudes are below 2^31, so that signed comparison does
    const __m256i below = _mm256_set1_epi32(static_cast<int>(bound) - 1);
    const __m256i mask  = _mm256_set1_epi32(0x7fffffff);
    for (; i + 8 <= n; i += 8) {
        const auto *  at   = reinterpret_cast<const __m256i *>(x + i);
        const __m256i some = _mm256_and_si256(_mm256_loadu_si256(at), mask);
        const __m256  over = _mm256_castsi256_ps(_mm256_cmpgt_epi32(some, below));
        for (auto hits = static_cast<uint32_t>(_mm256_movemask_ps(over)); hits != 0; hits &= hits - 1) {
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

void top_k(const float * x, int64_t n, int64_t k, uint16_t * index, TopKScratch & scratch) {
    if (k == n) {
        for (int64_t i = 0; i < n; ++i) {
            index[i] = static_cast<uint16_t>(i);
        }
        return;
    }
    const int64_t    n_found = candidates(x, n, lower_bound(x, n, k, scratch), scratch);
    const uint32_t * bits    = scratch.bits.data();
    const uint32_t   last    = kth_largest(bits, n_found, k, 0);
    // of those that equal the last one, as many as there is room for
    int64_t n_equal = k - count_from(bits, n_found, last + 1);
    for (int64_t i = 0, out = 0; out < k; ++i) {
        const bool equal = bits[i] == last;
        if (bits[i] > last || (equal && n_equal > 0)) {
            index[out++] = scratch.index[i];
            n_equal -= equal ? 1 : 0;
        }
    }
}

}  // namespace gt
