// comm/http/link.h — how a client uses its internet link.
#pragma once

#include "ggml-train/base/base.h"

#include <atomic>
#include <chrono>
#include <string>

namespace gt {

// Traffic of a client so far.
struct LinkCounters {
    std::atomic<uint64_t> bytes_up{0};
    std::atomic<uint64_t> bytes_down{0};
    std::atomic<uint64_t> n_requests{0};
    std::atomic<uint64_t> n_retries{0};
    std::atomic<uint64_t> n_connects{0};
};

struct LinkOptions {
    int                           n_connections = 4;
    uint64_t                      up_limit      = 0;  // bytes per second, of all together; 0: none
    std::string                   congestion    = "bbr";  // TCP congestion control, if allowed
    std::chrono::milliseconds     stall{20'000};          // retry a transfer without progress
    std::chrono::milliseconds     give_up{60'000};        // fail without any progress
    std::shared_ptr<LinkCounters> counters;               // may be null
};

}  // namespace gt
