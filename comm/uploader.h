// comm/uploader.h — puts values in the background, in order, until each is there.
#pragma once

#include "comm/membership.h"
#include "comm/store.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace gt {

class Uploader {
public:
    // A job throws StoreError to be called again later, with back-off.
    struct Job {
        std::function<void()> run;
        uint64_t              index = kNone;  // dropped once this round is closed; kNone: never
    };

    Uploader();
    ~Uploader();  // drops what is left
    Uploader(const Uploader &)             = delete;
    Uploader & operator=(const Uploader &) = delete;

    // Throws what an earlier job threw, other than StoreError.
    void push(Job job);

    // Rounds up to this one are closed: their messages are too late.
    void closed(uint64_t index);

    // Waits until everything is done, at most so long; returns whether it is.
    bool drain(Millis patience);

private:
    void loop();

    std::mutex              mutex_;
    std::condition_variable changed_;
    std::deque<Job>         jobs_;
    bool                    is_busy_ = false, stop_ = false;
    uint64_t                closed_ = 0;
    std::exception_ptr      failed_;
    std::thread             thread_;
};

}  // namespace gt
