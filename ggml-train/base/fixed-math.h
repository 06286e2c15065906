// ggml-train/base/fixed-math.h — cosine and logarithm with a fixed order of operations: the same bits on
// every machine, independent of libm. Compiled with -ffp-contract=off. For schedules and initial weights.
#pragma once

#include <cstdint>

namespace gt {

// cos(pi * p / q). REQUIRES: q > 0.
constexpr double cos_pi(int64_t p, int64_t q) {
    p %= 2 * q;
    if (p < 0) {
        p += 2 * q;
    }
    if (p > q) {
        p = 2 * q - p;
    }
    if (2 * p > q) {
        return -cos_pi(q - p, q);
    }
    constexpr double kPi     = 3.14159265358979323846;
    const bool       by_sine = 4 * p > q;  // cos x = sin(pi/2 - x): a shorter series
    const double     x = by_sine ? kPi * static_cast<double>(q - 2 * p) / static_cast<double>(2 * q)
                                 : kPi * static_cast<double>(p) / static_cast<double>(q);
    double           term = by_sine ? x : 1.0, sum = term;
    for (int i = by_sine ? 2 : 1; i < 24; i += 2) {
        term = -term * x * x / static_cast<double>(i * (i + 1));
        sum += term;
    }
    return sum;
}

// cos(pi * x) for x in [0, 1]; absolute error below 1e-15.
double fixed_cos_pi(double x);

// Natural logarithm of a normal positive x; relative error below 1e-15.
double fixed_log(double x);

}  // namespace gt
