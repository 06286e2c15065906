// comm/hub/hub-threads.cpp — see hub-threads.h.
#include "comm/hub/hub-threads.h"

namespace gt {

static constexpr auto kIdle = std::chrono::seconds(10);  // then a thread ends

static void join(std::list<std::thread> & over) {
    for (std::thread & thread : over) {
        thread.join();
    }
    over.clear();
}

bool HubThreads::enqueue(std::function<void()> job) {
    std::lock_guard<std::mutex> lock(mutex_);
    join(over_);
    if (stopping_ || (jobs_.size() >= n_idle_ && threads_.size() >= max_threads_)) {
        log_.fault(format(
            "refused a connection: the limit of %zu is reached; `ulimit -n` may raise it",
            max_threads_
        ));
        return false;
    }
    jobs_.push_back(std::move(job));
    if (jobs_.size() > n_idle_) {
        const auto self = threads_.emplace(threads_.end());
        *self           = std::thread([this, self] { work(self); });
    } else {
        changed_.notify_one();
    }
    return true;
}

// Joined, not detached: a thread's end frees what OpenSSL keeps for it, which must not run beside exit().
void HubThreads::shutdown() {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    ended_.wait(lock, [&] { return threads_.empty(); });
    join(over_);
}

void HubThreads::work(Threads::iterator self) {
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
    over_.splice(over_.end(), threads_, self);
    ended_.notify_all();
}

}  // namespace gt
