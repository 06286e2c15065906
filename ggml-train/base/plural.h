// ggml-train/base/plural.h — "1 step", "20 steps".
#pragma once

#include <cstdint>
#include <string>

namespace gt {

inline std::string plural(int64_t n, const std::string & thing) {
    return std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

}  // namespace gt
