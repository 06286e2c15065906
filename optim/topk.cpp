#include "optim/topk.h"

#include <algorithm>
#include <bit>
#include <functional>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace gt {

static uint32_t magnitude_bits(float x) {
    return std::bit_cast<uint32_t>(x) & 0x7fffffffu;
}

// A key orders by magnitude, then by the lower index.
static uint64_t make_key(uint32_t bits, int64_t i) {
    return static_cast<uint64_t>(bits) << 32 | (0xffffffffu - static_cast<uint32_t>(i));
}

// A magnitude that at least k elements reach: of the maxima of some groups of elements the k-th.
static uint32_t lower_bound(const float * x, int64_t n, int64_t k, TopKScratch & scratch) {
    constexpr int64_t kMaxGroups = 1024;
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
    std::nth_element(maxima, maxima + k - 1, maxima + n_groups, std::greater<>());
    return maxima[k - 1];
}

// Keys of all elements of at least `bound`, by ascending index.
static void candidates(const float * x, int64_t n, uint32_t bound, std::vector<uint64_t> & keys) {
    keys.clear();
    int64_t i = 0;
#if defined(__AVX512F__)
    const __m512i floor = _mm512_set1_epi32(static_cast<int>(bound));
    const __m512i mask  = _mm512_set1_epi32(0x7fffffff);
    for (; i + 16 <= n; i += 16) {
        const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(x + i), mask);
        uint32_t      hits = _mm512_cmpge_epu32_mask(bits, floor);
        for (; hits != 0; hits &= hits - 1) {
            const int64_t at = i + std::countr_zero(hits);
            keys.push_back(make_key(magnitude_bits(x[at]), at));
        }
    }
#elif defined(__AVX2__)
    // magnitudes are below 2^31, so that signed comparison does
    const __m256i below = _mm256_set1_epi32(static_cast<int>(bound) - 1);
    const __m256i mask  = _mm256_set1_epi32(0x7fffffff);
    for (; i + 8 <= n; i += 8) {
        const __m256i bits = _mm256_and_si256(
            _mm256_loadu_si256(reinterpret_cast<const __m256i *>(x + i)), mask
        );
        const __m256i over = _mm256_cmpgt_epi32(bits, below);
        uint32_t      hits = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(over)));
        for (; hits != 0; hits &= hits - 1) {
            const int64_t at = i + std::countr_zero(hits);
            keys.push_back(make_key(magnitude_bits(x[at]), at));
        }
    }
#endif
    for (; i < n; ++i) {
        if (magnitude_bits(x[i]) >= bound) {
            keys.push_back(make_key(magnitude_bits(x[i]), i));
        }
    }
}

void top_k(const float * x, int64_t n, int64_t k, uint16_t * index, TopKScratch & scratch) {
    if (k == n) {
        for (int64_t i = 0; i < n; ++i) {
            index[i] = static_cast<uint16_t>(i);
        }
        return;
    }
    const uint32_t          bound = lower_bound(x, n, k, scratch);
    std::vector<uint64_t> & keys  = scratch.keys;
    candidates(x, n, bound, keys);
    const int64_t n_found = static_cast<int64_t>(keys.size());
    // copy behind, since nth_element loses the order that the indices are to come out in
    keys.resize(2 * n_found);
    std::copy(keys.begin(), keys.begin() + n_found, keys.begin() + n_found);
    const auto behind = keys.begin() + n_found;
    std::nth_element(behind, behind + k - 1, keys.end(), std::greater<>());
    const uint64_t last = behind[k - 1];
    int64_t        out  = 0;
    for (int64_t i = 0; i < n_found; ++i) {
        if (keys[i] >= last) {
            index[out++] = static_cast<uint16_t>(0xffffffffu - static_cast<uint32_t>(keys[i]));
        }
    }
}

}  // namespace gt
