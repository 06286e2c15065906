// comm/local/rendezvous.h — where the ranks of a host wait for each other.
//
// Every collective call is: arrive (with the name of the call and a pointer to the data), work on each
// other's data, depart. When a rank fails or ends, all waits, now and later, throw an Error with the
// first failure. Waits have no timeout of their own: what the missing rank waits for (a peer, a file)
// has one.
#pragma once

#include "ggml-train/local-group.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>

namespace gt {

// A collective call of one rank. Equal on all ranks, except for `data`.
struct Collective {
    const char * verb = "";
    uint64_t     size = 0;  // size or digest of the arguments
    const void * data = nullptr;
};

class Rendezvous {
public:
    explicit Rendezvous(int n);

    int size() const { return static_cast<int>(calls_.size()); }

    // Waits until all ranks have arrived with an equal call. Throws Error on any failure.
    void arrive(int rank, const Collective & call);

    // The data of a rank. REQUIRES: between arrive and depart.
    const void * data(int rank) const { return calls_[static_cast<size_t>(rank)].data; }

    // Waits until all ranks are done with each other's data.
    void depart(int rank);

    // Records a failure of this rank (the first one counts) and ends all waits.
    void fail(int rank, std::exception_ptr error);

    // This rank has ended: an error for ranks that wait for it.
    void leave(int rank);

    // The first failure as an Error; null if there is none.
    std::exception_ptr failure() const;

    // Waits until all ranks have left; after a failure at most `grace`. False: timed out.
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
