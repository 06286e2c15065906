#include "optim/rules/moments.h"

#include <algorithm>
#include <bit>

namespace gt {

static constexpr uint32_t kSign = 0x80000000u, kLargest = 0x7f7fffffu;  // the bits of FLT_MAX

float encode_moments(const cuda::MomentCode & code, const float * x, int64_t n, uint8_t * out) {
    uint32_t top = 0;
    for (int64_t i = 0; i < n; ++i) {
        top = std::max(top, std::bit_cast<uint32_t>(x[i]) & ~kSign);
    }
    const float scale   = std::bit_cast<float>(std::min(top, kLargest));
    const float divisor = top > 0 ? scale : 1.0f;
    for (int64_t i = 0; i < n; ++i) {
        const auto    bits  = std::bit_cast<uint32_t>(x[i] / divisor);
        const auto    half  = 1u << (cuda::kMomentShift - 1);
        const auto    count = static_cast<int32_t>(((bits & ~kSign) + half) >> cuda::kMomentShift);
        const int32_t least = x[i] == 0.0f ? 0 : code.least;
        const int32_t c     = std::clamp(count - code.first, least, code.most);
        const auto    sign  = static_cast<int32_t>(bits >> 24 & 0x80);
        out[i]              = static_cast<uint8_t>(c | sign);
    }
    return scale;
}

void decode_moments(
    const cuda::MomentCode & code, float scale, const uint8_t * in, int64_t n, float * x
) {
    for (int64_t i = 0; i < n; ++i) {
        const int32_t c    = in[i] & code.most;
        const auto    bits = static_cast<uint32_t>(c + code.first) << cuda::kMomentShift;
        const auto    sign = static_cast<uint32_t>(in[i] & ~code.most) << 24;
        x[i]               = std::bit_cast<float>(c == 0 ? sign : bits | sign) * scale;
    }
}

}  // namespace gt
