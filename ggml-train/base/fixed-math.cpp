#include "ggml-train/base/fixed-math.h"

#include <bit>
#include <cstdint>

namespace gt {

static constexpr double kPi  = 3.141592653589793238;
static constexpr double kLn2 = 0.693147180559945309;

// Taylor series, for |x| <= pi/4: the last term is below 1e-19.
static double cos_series(double x) {
    const double z   = x * x;
    double       sum = 0.0;
    for (int n = 18; n >= 2; n -= 2) {
        sum = (1.0 - sum) * z / (n * (n - 1));
    }
    return 1.0 - sum;
}

static double sin_series(double x) {
    const double z   = x * x;
    double       sum = 0.0;
    for (int n = 19; n >= 3; n -= 2) {
        sum = (1.0 - sum) * z / (n * (n - 1));
    }
    return x * (1.0 - sum);
}

double fixed_cos_pi(double x) {
    if (x > 0.5) {
        return -fixed_cos_pi(1.0 - x);
    }
    return x <= 0.25 ? cos_series(kPi * x) : sin_series(kPi * (0.5 - x));
}

double fixed_log(double x) {
    // x = m * 2^e with m in [0.7, 1.41), then log m = 2 artanh((m - 1) / (m + 1))
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    int64_t        e    = static_cast<int64_t>(bits >> 52) - 1023;
    double         m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        ++e;
    }
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double       sum = 0.0;
    for (int n = 25; n >= 1; n -= 2) {
        sum = sum * z + 1.0 / n;
    }
    return static_cast<double>(e) * kLn2 + 2.0 * s * sum;
}

}  // namespace gt
