// comm/hub-threads.h — a thread for each connection of the hub, up to a limit.
//
// httplib's own pool counts a worker that has been woken but has not yet begun as idle; a second
// connection then waits in its queue until some kept-alive connection ends, which may take minutes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <httplib.h>
#include <mutex>
#include <thread>

namespace gt {

class HubThreads : public httplib::TaskQueue {
public:
    explicit HubThreads(size_t max_threads) : max_threads_(max_threads) {}
    ~HubThreads() override { shutdown(); }

    // False: the limit is reached and the connection is closed.
    bool enqueue(std::function<void()> job) override {
        std::lock_guard<std::mutex> lock(mutex_);
        if (stopping_ || (jobs_.size() >= n_idle_ && n_threads_ >= max_threads_)) {
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

    void shutdown() override {
        std::unique_lock<std::mutex> lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
        ended_.wait(lock, [&] { return n_threads_ == 0; });
    }

private:
    void work() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            n_idle_++;
            changed_.wait_for(lock, std::chrono::seconds(10), [&] {
                return stopping_ || !jobs_.empty();
            });
            n_idle_--;
            if (jobs_.empty()) {  // nothing to do for ten seconds, or the end
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

    size_t                            max_threads_;
    std::mutex                        mutex_;
    std::condition_variable           changed_, ended_;
    std::deque<std::function<void()>> jobs_;
    size_t                            n_idle_ = 0, n_threads_ = 0;
    bool                              stopping_ = false;
};

}  // namespace gt
