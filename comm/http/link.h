// comm/http/link.h — how a client uses its internet link.
#pragma once

#include "ggml-train/base/base.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
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

// A token bucket, shared by everything on this machine that sends to other hosts. Thread-safe.
class UploadLimit {
public:
    explicit UploadLimit(uint64_t bytes_per_s) : rate_(double(bytes_per_s)) {}

    size_t take(size_t wanted);  // how many may be sent now; 0: pause
    void   charge(size_t n);     // sent without asking: others wait for it

private:
    void fill();

    std::mutex                            mutex_;
    double                                rate_, filled_ = 0;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Null if there is no limit.
std::shared_ptr<UploadLimit> make_upload_limit(uint64_t bytes_per_s);

struct LinkOptions {
    int                           n_connections = 4;
    std::shared_ptr<UploadLimit>  up_limit;            // null: none
    std::string                   congestion = "bbr";  // TCP congestion control, if allowed
    std::chrono::milliseconds     stall{20'000};       // retry a transfer without progress
    std::chrono::milliseconds     give_up{60'000};     // fail without any progress
    std::shared_ptr<LinkCounters> counters;            // may be null

    // Called by the network's thread when nothing has answered for a few seconds, or the server has been full:
    // "does not answer (why); trying again". And when that has ended: "answers again".
    std::function<void(const std::string & what)> on_trouble;
    std::function<bool()>                         stop;  // true: fail instead of trying again
};

}  // namespace gt
