// comm/hub/hub-limits.cpp — see hub-limits.h.
#include "comm/hub/hub-limits.h"

#include "comm/wire/frame.h"

#include <algorithm>

namespace gt {

static constexpr double kBurst_s = 2;  // a bucket holds the allowance of this time

HostLimits::HostLimits(uint64_t bytes_s, uint64_t requests_s)
    : bytes_s_(double(bytes_s)), requests_s_(double(requests_s)) {}

bool HostLimits::allow(const std::string & host, uint64_t bytes) {
    const auto   now       = std::chrono::steady_clock::now();
    const double max_bytes = kBurst_s * bytes_s_, max_requests = kBurst_s * requests_s_;
    std::lock_guard<std::mutex> lock(mutex_);
    if (hosts_.size() >= kMaxHosts && !hosts_.contains(host)) {
        hosts_.erase(std::ranges::min_element(hosts_, {}, [](const auto & one) {
            return one.second.last;
        }));
    }
    Bucket & bucket = hosts_.try_emplace(host, Bucket{max_bytes, max_requests, now}).first->second;
    const double s  = std::chrono::duration<double>(now - bucket.last).count();
    bucket.last     = now;
    bucket.bytes    = std::min(bucket.bytes + s * bytes_s_, max_bytes);
    bucket.requests = std::min(bucket.requests + s * requests_s_, max_requests);
    // one large transfer may overdraw the bucket: the next one waits
    if (bucket.requests < 1 || bucket.bytes <= 0) {
        return false;
    }
    bucket.requests -= 1;
    bucket.bytes -= double(bytes);
    return true;
}

}  // namespace gt
