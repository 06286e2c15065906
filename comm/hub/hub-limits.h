// comm/hub/hub-limits.h — how much one host may ask of the hub.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace gt {

// Two token buckets per host, of requests and bytes. Thread-safe, bounded in memory: of many names, the last
// ones that asked are known.
class HostLimits {
public:
    HostLimits(uint64_t bytes_s, uint64_t requests_s);

    // False: too fast.
    bool allow(const std::string & host, uint64_t bytes);

private:
    struct Bucket {
        double                                bytes, requests;
        std::chrono::steady_clock::time_point last;
    };
    std::mutex                    mutex_;
    std::map<std::string, Bucket> hosts_;
    double                        bytes_s_, requests_s_;
};

}  // namespace gt
