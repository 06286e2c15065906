// comm/hub/hub-limits.cpp — see hub-limits.h.
#include "comm/hub/hub-limits.h"

#include <algorithm>

namespace gt {

static constexpr double kBurst_s = 2;  // a bucket holds the allowance of this time

HostLimits::HostLimits(uint64_t bytes_s, uint64_t requests_s, int max_hosts)
    : bytes_s_(double(bytes_s)), requests_s_(double(requests_s)), max_hosts_(size_t(max_hosts)) {}

HostLimits::Answer HostLimits::allow(const std::string & host, uint64_t bytes) {
    const auto   now       = std::chrono::steady_clock::now();
    const double max_bytes = kBurst_s * bytes_s_, max_requests = kBurst_s * requests_s_;
    std::lock_guard<std::mutex> lock(mutex_);
    auto                        found = hosts_.find(host);
    if (found == hosts_.end()) {
        if (hosts_.size() >= max_hosts_) {
            return Answer::too_many_hosts;
        }
        found = hosts_.emplace(host, Bucket{max_bytes, max_requests, now}).first;
    }
    Bucket &     bucket = found->second;
    const double s      = std::chrono::duration<double>(now - bucket.last).count();
    bucket.last         = now;
    bucket.bytes        = std::min(bucket.bytes + s * bytes_s_, max_bytes);
    bucket.requests     = std::min(bucket.requests + s * requests_s_, max_requests);
    // one large transfer may overdraw the bucket: the next one waits
    if (bucket.requests < 1 || bucket.bytes <= 0) {
        return Answer::too_fast;
    }
    bucket.requests -= 1;
    bucket.bytes -= double(bytes);
    return Answer::yes;
}

}  // namespace gt
