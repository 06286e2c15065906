// comm/rendezvous.h — where the ranks of a host wait for one another.
//
// Every collective call is: arrive (all say what they call and where their data is), work on one
// another's data, depart. A rank that fails or ends is never waited for: all waits, now and later,
// end with an Error that tells the first failure. The wait has no deadline of its own, since
// whatever the missing rank waits for (a peer, a file) has one there.
#pragma once

#include "ggml-train/exchange.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>

namespace gt {

// What a rank is about to do. All ranks must agree, except for `data`.
struct Collective {
    const char * verb = "";
    uint64_t     size = 0;  // of the whole, and digest of its parts: equal on all ranks
    const void * data = nullptr;
};

class Rendezvous {
public:
    explicit Rendezvous(int n);

    int size() const { return static_cast<int>(calls_.size()); }

    // Waits until all ranks have arrived with an equal call. Throws Error on any failure.
    void arrive(int rank, const Collective & call);

    // What a rank gave as its data. REQUIRES: between arrive and depart.
    const void * data(int rank) const { return calls_[static_cast<size_t>(rank)].data; }

    // Waits until all ranks are done with one another's data.
    void depart(int rank);

    // Records a failure of this rank (the first one counts) and wakes everybody.
    void fail(int rank, std::exception_ptr error);

    // This rank will not come again. Ordinary at the end; an error for whoever waits for it.
    void leave(int rank);

    // The first failure, told as an Error; null if there is none.
    std::exception_ptr failure() const;

    // Waits until all ranks have left, but after a failure no longer than `grace`. False: too late.
    [[nodiscard]] bool wait_all_left(std::chrono::milliseconds grace);

private:
    void                      meet(std::unique_lock<std::mutex> & lock, int rank, bool compare);
    void                      fail_locked(const std::string & message);
    [[nodiscard]] std::string disagreement() const;

    mutable std::mutex      mutex_;
    std::condition_variable changed_;
    std::vector<Collective> calls_;
    std::vector<bool>       left_;
    int                     n_left_     = 0;
    int                     n_arrived_  = 0;
    uint64_t                generation_ = 0;
    std::exception_ptr      failure_;
};

}  // namespace gt
