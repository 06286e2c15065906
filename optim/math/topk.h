// optim/math/topk.h — the k largest |x| of a chunk; ties to the lower index.
//
// No sort: find a bound that at least k elements reach, collect these, and bisect for the k-th largest.
// The values alone define the result, so the search may differ between machines.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

// Working memory of top_k, to be kept between calls.
struct TopKScratch {
    std::vector<uint32_t> bits;    // magnitudes of the candidates
    std::vector<uint16_t> index;   // and where they are
    std::vector<uint32_t> maxima;  // of groups of elements
};

// Writes the indices of the k largest magnitudes, ascending. REQUIRES: 1 <= k <= n <= 65536.
void top_k(const float * x, int64_t n, int64_t k, uint16_t * index, TopKScratch & scratch);

}  // namespace gt
