// tools/cli/flag-values.h — flag values from and to text, independent of the locale; see flags.h.
#pragma once

#include "tools/cli/flags.h"

namespace gt {

// Parses `text` into the field. A UsageError names the flag and the form that was expected. An empty text
// clears a list, any other one is appended to it.
void parse_value(const std::string & flag, const std::string & text, bool & field);
void parse_value(const std::string & flag, const std::string & text, int & field);
void parse_value(const std::string & flag, const std::string & text, int64_t & field);
void parse_value(const std::string & flag, const std::string & text, uint64_t & field);
void parse_value(const std::string & flag, const std::string & text, float & field);
void parse_value(const std::string & flag, const std::string & text, double & field);
void parse_value(const std::string & flag, const std::string & text, std::string & field);
void parse_value(
    const std::string & flag, const std::string & text, std::vector<std::string> & field
);

// The shortest text that parses to the same value.
std::string        value_text(bool x);
std::string        value_text(float x);
std::string        value_text(double x);
std::string        value_text(const std::vector<std::string> & x);  // one item per line
inline std::string value_text(int x) {
    return std::to_string(x);
}
inline std::string value_text(int64_t x) {
    return std::to_string(x);
}
inline std::string value_text(uint64_t x) {
    return std::to_string(x);
}
inline std::string value_text(const std::string & x) {
    return x;
}

}  // namespace gt
