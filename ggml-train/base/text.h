// ggml-train/base/text.h — numbers as text for messages and progress lines.
#pragma once

#include <cstdint>
#include <string>

namespace gt {

// "3.2 GB"
std::string bytes_text(uint64_t n_bytes);

// "12.3k", "870", "1.25M"
std::string count_text(double n);

// The text with dots for control characters, which a terminal would obey, and bytes that are no UTF-8.
std::string printable(const std::string & text);

// "1d01h", "1h05m", "1m20s", "8s"
std::string time_text(double seconds);

}  // namespace gt
