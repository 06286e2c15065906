#include "tools/cli/flag-values.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace gt {

[[noreturn]] static void
refuse(const std::string & flag, const std::string & text, const std::string & expected) {
    throw UsageError("--" + flag + " " + text + ": expected " + expected);
}

// The number at the beginning of `text`; `rest` receives the text after it.
static bool parse_number(const std::string & text, double & value, std::string & rest) {
    const char * begin        = text.c_str();
    const char * end          = begin + text.size();
    const auto [stop, failed] = std::from_chars(begin, end, value);
    rest                      = std::string(stop, end);
    return failed == std::errc() && std::isfinite(value);
}

static bool factor_of(const std::string & suffix, double & factor) {
    static const std::pair<const char *, double> kFactors[] = {
        {"", 1.0},      {"k", 1e3},        {"K", 1e3},           {"M", 1e6},
        {"m", 1e6},     {"G", 1e9},        {"B", 1e9},           {"T", 1e12},
        {"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0},
    };
    for (const auto & [name, value] : kFactors) {
        if (suffix == name) {
            factor = value;
            return true;
        }
    }
    return false;
}

template <class T>
static void parse_integer(const std::string & flag, const std::string & text, T & field) {
    // plain digits first: exact for all 64 bits
    T            exact        = 0;
    const char * end          = text.c_str() + text.size();
    const auto [stop, failed] = std::from_chars(text.c_str(), end, exact);
    if (failed == std::errc() && stop == end) {
        field = exact;
        return;
    }
    double      value = 0.0, factor = 1.0;
    std::string rest;
    if (!parse_number(text, value, rest) || !factor_of(rest, factor)) {
        refuse(flag, text, "a whole number, such as 500, 10k, 2M");
    }
    value *= factor;
    if (value != std::floor(value)) {
        refuse(flag, text, "a whole number");
    }
    const double low = static_cast<double>(std::numeric_limits<T>::min());
    if (value < low || value >= std::ldexp(1.0, std::numeric_limits<T>::digits)) {
        refuse(flag, text, low < 0 ? "a smaller number" : "a number that is not negative");
    }
    field = static_cast<T>(value);
}

void parse_value(const std::string & flag, const std::string & text, int & field) {
    parse_integer(flag, text, field);
}

void parse_value(const std::string & flag, const std::string & text, int64_t & field) {
    parse_integer(flag, text, field);
}

void parse_value(const std::string & flag, const std::string & text, uint64_t & field) {
    parse_integer(flag, text, field);
}

void parse_value(const std::string & flag, const std::string & text, double & field) {
    double      value = 0.0, factor = 1.0;
    std::string rest;
    if (!parse_number(text, value, rest) || !factor_of(rest, factor)) {
        refuse(flag, text, "a number, such as 0.1 or 3e-4");
    }
    field = value * factor;
}

void parse_value(const std::string & flag, const std::string & text, float & field) {
    double value = 0.0;
    parse_value(flag, text, value);
    if (std::fabs(value) > std::numeric_limits<float>::max()) {
        refuse(flag, text, "a number, such as 0.1 or 3e-4");
    }
    field = static_cast<float>(value);
}

void parse_value(const std::string & flag, const std::string & text, bool & field) {
    if (text != "true" && text != "false" && text != "1" && text != "0") {
        refuse(flag, text, "true or false");
    }
    field = text == "true" || text == "1";
}

void parse_value(const std::string &, const std::string & text, std::string & field) {
    field = text;
}

void parse_value(const std::string &, const std::string & text, std::vector<std::string> & field) {
    if (text.empty()) {
        field.clear();
    } else {
        field.push_back(text);
    }
}

std::string value_text(bool x) {
    return x ? "true" : "false";
}

template <class T>
static std::string shortest(T x) {
    char       buffer[64];
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, x);
    return {buffer, result.ptr};
}

std::string value_text(float x) {
    return shortest(x);
}

std::string value_text(double x) {
    return shortest(x);
}

std::string value_text(const std::vector<std::string> & x) {
    std::string text;
    for (const std::string & item : x) {
        text += (text.empty() ? "" : "\n") + item;
    }
    return text;
}

}  // namespace gt
