// comm/http/link.cpp — see link.h.
#include "comm/http/link.h"

#include <algorithm>

namespace gt {

static constexpr double kMinBurst = 16384;
static constexpr double kPacket   = 1400;

// REQUIRES: mutex_ is held.
void UploadLimit::fill() {
    const auto   now  = std::chrono::steady_clock::now();
    const double full = std::max(kMinBurst, rate_ / 20);  // bursts of at most 50 ms
    filled_ = std::min(filled_ + std::chrono::duration<double>(now - last_).count() * rate_, full);
    last_   = now;
}

size_t UploadLimit::take(size_t wanted) {
    const std::lock_guard lock(mutex_);
    fill();
    if (filled_ < std::min(double(wanted), kPacket)) {  // not worth a packet
        return 0;
    }
    const size_t n = std::min(wanted, size_t(filled_));
    filled_ -= double(n);
    return n;
}

void UploadLimit::charge(size_t n) {
    const std::lock_guard lock(mutex_);
    fill();
    filled_ -= double(n);
}

std::shared_ptr<UploadLimit> make_upload_limit(uint64_t bytes_per_s) {
    return bytes_per_s == 0 ? nullptr : std::make_shared<UploadLimit>(bytes_per_s);
}

}  // namespace gt
