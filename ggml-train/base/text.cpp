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

// Bytes of the UTF-8 character that begins there; 0: none does.
static size_t character_length(const std::string & text, size_t at) {
    const auto byte = [&](size_t i) {
        return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
    };
    const unsigned first  = byte(0);
    const size_t   length = first < 0x80                    ? 1
                            : first >= 0xc2 && first < 0xe0 ? 2
                            : first >= 0xe0 && first < 0xf0 ? 3
                            : first >= 0xf0 && first < 0xf5 ? 4
                                                            : 0;
    for (size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) {
            return 0;
        }
    }
    // overlong forms, surrogates, beyond U+10FFFF
    const bool is_none = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
                         (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90);
    return is_none ? 0 : length;
}

std::string printable(const std::string & text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const size_t length = character_length(text, at);
        const auto   byte   = static_cast<unsigned char>(text[at]);
        const bool   shown  = byte == '\n' || byte == '\t' || (byte >= 32 && byte != 127);
        out += length > 0 && shown ? text.substr(at, length) : ".";
        at += std::max<size_t>(1, length);
    }
    return out;
}

}  // namespace gt
