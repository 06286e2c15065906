// tests/engine/kernel-checks.h — shared by the tests of CPU kernels: inputs, threads one after the other,
// and a comparison that an element no thread wrote (NaN) always fails.
#pragma once

#include "ggml-train/base/base.h"
#include "ggml-train/cpu/kernels.h"
#include "tests/catch.h"

#include <cmath>
#include <limits>
#include <vector>

using Floats  = std::vector<float>;
using Doubles = std::vector<double>;

constexpr int    kThreads[] = {1, 2, 3, 5};
constexpr double kClose     = 3e-6;

inline Floats random_floats(uint64_t seed, int64_t n, float scale = 1.0f) {
    Floats x(n);
    for (int64_t i = 0; i < n; ++i) {
        x[i] = (gt::random_uniform(gt::random_bits(seed, i)) * 2.0f - 1.0f) * scale;
    }
    return x;
}

inline Floats unwritten(int64_t n) {
    return Floats(n, std::numeric_limits<float>::quiet_NaN());
}

// Calls f with the part of each of n_threads threads.
template <class F>
inline void run(int n_threads, F f) {
    for (int i = 0; i < n_threads; ++i) {
        f(gt::cpu::Part{i, n_threads});
    }
}

// The largest difference, as a part of the largest reference; NaN counts as infinite.
inline double difference(const Floats & got, const Doubles & want) {
    REQUIRE(got.size() == want.size());
    double worst = 0, largest = 1e-30;
    for (size_t i = 0; i < got.size(); ++i) {
        const double d = std::fabs(got[i] - want[i]);
        worst          = d <= worst ? worst : std::isnan(d) ? INFINITY : d;
        largest        = std::max(largest, std::fabs(want[i]));
    }
    return worst / largest;
}
