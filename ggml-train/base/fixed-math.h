// ggml-train/base/fixed-math.h — cosine and logarithm with a fixed order of operations: the same bits on
// every machine, independent of libm. Compiled with -ffp-contract=off. For schedules and initial weights.
#pragma once

namespace gt {

// cos(pi * x) for x in [0, 1]; absolute error below 1e-15.
double fixed_cos_pi(double x);

// Natural logarithm of a normal positive x; relative error below 1e-15.
double fixed_log(double x);

}  // namespace gt
