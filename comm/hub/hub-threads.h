// comm/hub/hub-threads.h — one thread per connection of the hub, up to a limit.
//
// httplib's own pool counts a worker that was notified but has not started yet as idle; a second
// connection then waits in its queue until a kept-alive connection ends, which may take minutes.
#pragma once

#include "comm/hub/hub-log.h"

#include <condition_variable>
#include <httplib.h>
#include <list>
#include <thread>

namespace gt {

class HubThreads : public httplib::TaskQueue {
public:
    HubThreads(size_t max_threads, HubLog & log) : max_threads_(max_threads), log_(log) {}
    ~HubThreads() override { HubThreads::shutdown(); }

    // False: the limit is reached.
    bool enqueue(std::function<void()> job) override;
    void shutdown() override;  // waits for all threads

private:
    using Threads = std::list<std::thread>;

    void work(Threads::iterator self);

    size_t                            max_threads_;
    HubLog &                          log_;
    std::mutex                        mutex_;
    std::condition_variable           changed_, ended_;
    std::deque<std::function<void()>> jobs_;
    Threads                           threads_, over_;  // over_: to be joined
    size_t                            n_idle_   = 0;
    bool                              stopping_ = false;
};

}  // namespace gt
