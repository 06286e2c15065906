// comm/hub/hub-threads.cpp — see hub-threads.h.
#include "comm/hub/hub-threads.h"

#include <thread>

namespace gt {

static constexpr auto kIdle = std::chrono::seconds(10);  // then a thread ends

bool HubThreads::enqueue(std::function<void()> job) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_ || (jobs_.size() >= n_idle_ && n_threads_ >= max_threads_)) {
        log_.fault(format(
            "refused a connection: the limit of %zu is reached; `ulimit -n` may raise it",
            max_threads_
        ));
        return false;
    }
    jobs_.push_back(std::move(job));
    if (jobs_.size() > n_idle_) {
        n_threads_++;
        std::thread([this] { work(); }).detach();  // shutdown waits for n_threads_
    } else {
        changed_.notify_one();
    }
    return true;
}

void HubThreads::shutdown() {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    ended_.wait(lock, [&] { return n_threads_ == 0; });
}

void HubThreads::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        n_idle_++;
        changed_.wait_for(lock, kIdle, [&] { return stopping_ || !jobs_.empty(); });
        n_idle_--;
        if (jobs_.empty()) {
            break;
        }
        const std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
        lock.lock();
    }
    if (--n_threads_ == 0) {
        ended_.notify_all();
    }
}

}  // namespace gt
