// optim/rules/moments.h — a block of AdamW's moments in 8 bits; the kernel adamw_q8 of ggml-train/cuda/demo.h
// computes the same bits.
//
// As in bitsandbytes (arXiv 2110.02861) a block has a scale, its largest magnitude, and codes that reach far below it:
// here floats of 3 bits of mantissa. A second moment that is not zero never becomes zero: its root divides.
#pragma once

#include "ggml-train/cuda/demo.h"

namespace gt {

// Returns the scale. REQUIRES: n <= kMomentBlock, x is finite or, squares, Inf.
float encode_moments(const cuda::MomentCode & code, const float * x, int64_t n, uint8_t * out);

void decode_moments(
    const cuda::MomentCode & code, float scale, const uint8_t * in, int64_t n, float * x
);

}  // namespace gt
