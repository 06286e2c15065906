#include "ggml-train/base/text.h"

#include "ggml-train/base/base.h"

#include <algorithm>
#include <cmath>

namespace gt {

std::string bytes_text(uint64_t n_bytes) {
    const char * const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double             n       = static_cast<double>(n_bytes);
    int                unit    = 0;
    while (n >= 1000.0 && unit < 4) {
        n /= 1000.0;
        ++unit;
    }
    return unit == 0 ? format("%.0f %s", n, units[unit])
                     : format(n < 10.0 ? "%.1f %s" : "%.0f %s", n, units[unit]);
}

std::string count_text(double n) {
    const char * const units[] = {"", "k", "M", "G", "T"};
    int                unit    = 0;
    while (n >= 999.5 && unit < 4) {
        n /= 1000.0;
        ++unit;
    }
    const int digits = unit == 0 && (n >= 10.0 || n == std::floor(n)) ? 0
                       : n < 9.995                                    ? 2
                       : n < 99.95                                    ? 1
                                                                      : 0;
    return format("%.*f%s", digits, n, units[unit]);
}

std::string time_text(double seconds) {
    const auto s = static_cast<long long>(std::llround(std::max(0.0, seconds)));
    if (s >= 86400) {
        return format("%lldd%02lldh", s / 86400, s % 86400 / 3600);
    }
    if (s >= 3600) {
        return format("%lldh%02lldm", s / 3600, s % 3600 / 60);
    }
    return s >= 60 ? format("%lldm%02llds", s / 60, s % 60) : format("%llds", s);
}

std::string printable(const std::string & text) {
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        out += c == '\n' || c == '\t' || (byte >= 32 && byte != 127) ? c : '.';
    }
    return out;
}

}  // namespace gt
