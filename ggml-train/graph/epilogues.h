// ggml-train/graph/epilogues.h — products that end with a GELU, or with its slope: cuBLASLt applies it to sums that it
// has in registers, so that nobody reads them again.
#pragma once

#include <ggml.h>

namespace gt {

// Joins products of BF16 in the graph with a GELU (by tanh) that follows at once:
//   among the first n_forward nodes   y = linear(x), z = gelu(y):         z is the product, and writes y, too
//   in the reverse pass               g = dy w, dx = gelu_back(y, g):     dx is the product, there is no g
// What the reverse pass computes again stays apart: the bits are those of values that were kept.
void join_gelus(ggml_cgraph * graph, int n_forward);

}  // namespace gt
