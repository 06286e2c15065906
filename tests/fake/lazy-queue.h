// tests/fake/lazy-queue.h — a stream of a GPU that is as late as it may be: work runs when somebody waits for it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

namespace gt {

class LazyQueue {
public:
    void push(std::function<void()> work) { waiting_.push_back(std::move(work)); }

    // Runs all work that is there now.
    void run() { run_until(n_started_ + waiting_.size()); }

    // An event of this stream: runs the work that is there now, when it is called.
    std::function<void()> point() {
        return [this, n = n_started_ + waiting_.size()] { run_until(n); };
    }

private:
    // Work may wait for another stream, and that for earlier work of this one, which has been started by then.
    void run_until(uint64_t n) {
        while (n_started_ < n) {
            const std::function<void()> work = std::move(waiting_.front());
            waiting_.pop_front();
            ++n_started_;
            work();
        }
    }

    std::deque<std::function<void()>> waiting_;
    uint64_t                          n_started_ = 0;
};

// Events of the fake device are those of the emulator: what waits for one calls it.
using LazyEvent = std::function<void()>;

}  // namespace gt
