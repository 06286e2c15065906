// comm/rounds/uploader.cpp — see uploader.h.
#include "comm/rounds/uploader.h"

#include <algorithm>
#include <utility>

namespace gt {

constexpr Millis kFirstPause{100};
constexpr Millis kMaxPause{5'000};

Uploader::Uploader() : thread_([this] { loop(); }) {}

Uploader::~Uploader() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Uploader::push(Job job) {
    {
        const std::lock_guard lock(mutex_);
        if (failed_) {
            std::rethrow_exception(std::exchange(failed_, nullptr));
        }
        if (job.index > closed_) {
            jobs_.push_back(std::move(job));
        }
    }
    changed_.notify_all();
}

void Uploader::closed(uint64_t index) {
    const std::lock_guard lock(mutex_);
    closed_ = std::max(closed_, index);
    std::erase_if(jobs_, [&](const Job & job) { return job.index <= closed_; });
    changed_.notify_all();
}

void Uploader::restart(uint64_t index) {
    const std::lock_guard lock(mutex_);
    closed_ = index;
}

std::string Uploader::trouble() {
    const std::lock_guard lock(mutex_);
    return trouble_;
}

bool Uploader::drain(Millis timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return jobs_.empty() && !is_busy_; });
}

void Uploader::loop() {
    Millis           pause = kFirstPause;
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
        if (stop_) {
            return;
        }
        const Job job = std::move(jobs_.front());
        jobs_.pop_front();
        is_busy_ = true;
        lock.unlock();
        bool               done = true;
        std::string        why;
        std::exception_ptr failed;
        try {
            job.run();
        } catch (const StoreError & error) {
            done = false;
            why  = error.what();
        } catch (...) {
            failed = std::current_exception();  // not retryable
        }
        lock.lock();
        failed_  = failed ? failed : failed_;
        trouble_ = std::move(why);
        if (done) {
            pause = kFirstPause;
        } else {
            if (job.index > closed_) {
                jobs_.push_front(job);
            }
            changed_.wait_for(lock, pause, [&] { return stop_; });
            pause = std::min(2 * pause, kMaxPause);
        }
        is_busy_ = false;
        changed_.notify_all();
    }
}

}  // namespace gt
