// comm/rounds/uploader.h — a thread that puts values in order, and retries each until it succeeds.
#pragma once

#include "comm/store/store.h"
#include "comm/wire/commit.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace gt {

class Uploader {
public:
    // A job that throws StoreError is retried with back-off.
    struct Job {
        std::function<void()> run;
        uint64_t              index = kNone;  // dropped once this round is closed; kNone: never
    };

    Uploader();
    ~Uploader();  // drops the remaining jobs
    Uploader(const Uploader &)             = delete;
    Uploader & operator=(const Uploader &) = delete;

    // Rethrows an exception of an earlier job other than StoreError.
    void push(Job job);

    // Rounds up to `index` are closed: jobs for them are dropped.
    void closed(uint64_t index);

    // We joined again: only rounds up to `index` are closed.
    void restart(uint64_t index);

    // Why the last attempt failed; empty: it did not.
    std::string trouble();

    // Waits until all jobs are done, at most `timeout`; returns whether they are.
    bool drain(Millis timeout);

private:
    void loop();

    std::mutex              mutex_;
    std::condition_variable changed_;
    std::deque<Job>         jobs_;
    bool                    is_busy_ = false, stop_ = false;
    uint64_t                closed_ = 0;
    std::exception_ptr      failed_;
    std::string             trouble_;
    std::thread             thread_;
};

}  // namespace gt
