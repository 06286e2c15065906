// comm/local/rendezvous.cpp — see rendezvous.h.
#include "comm/local/rendezvous.h"

#include <algorithm>
#include <cstring>

namespace gt {

Rendezvous::Rendezvous(int n) : calls_(static_cast<size_t>(n)), left_(static_cast<size_t>(n)) {
    GT_CHECK(n >= 1, "a host has at least one rank");
}

void Rendezvous::arrive(int rank, const Collective & call) {
    std::unique_lock lock(mutex_);
    calls_[static_cast<size_t>(rank)] = call;
    meet(lock, rank, true);
}

void Rendezvous::depart(int rank) {
    std::unique_lock lock(mutex_);
    meet(lock, rank, false);
}

// A barrier. When it is complete all ranks pass, even if one fails right after.
void Rendezvous::meet(std::unique_lock<std::mutex> & lock, int rank, bool compare) {
    const uint64_t now = generation_;
    ++n_arrived_;
    if (n_arrived_ == size() && !failure_) {
        const std::string differ = compare ? disagreement() : "";
        if (differ.empty()) {
            n_arrived_ = 0;
            ++generation_;
            changed_.notify_all();
            return;
        }
        fail_locked(differ);
    }
    changed_.wait(lock, [&] { return generation_ != now || failure_ || n_left_ > 0; });
    if (generation_ != now) {
        return;
    }
    if (!failure_) {
        const auto gone = std::find(left_.begin(), left_.end(), true) - left_.begin();
        fail_locked(format(
            "rank %d ended while rank %d waits for it in %s", static_cast<int>(gone), rank,
            calls_[static_cast<size_t>(rank)].verb
        ));
    }
    std::rethrow_exception(failure_);
}

std::string Rendezvous::disagreement() const {
    for (size_t r = 1; r < calls_.size(); ++r) {
        if (std::strcmp(calls_[r].verb, calls_[0].verb) != 0) {
            return format(
                "ranks disagree: rank 0 calls %s, rank %zu %s", calls_[0].verb, r, calls_[r].verb
            );
        }
        if (calls_[r].size != calls_[0].size) {
            return format(
                "ranks disagree: rank %zu calls %s with other sizes than rank 0", r, calls_[r].verb
            );
        }
    }
    return "";
}

void Rendezvous::fail_locked(const std::string & message) {
    if (!failure_) {
        failure_ = std::make_exception_ptr(Error(message));
    }
    changed_.notify_all();
}

void Rendezvous::fail(int rank, std::exception_ptr error) {
    std::string what = "an unknown exception";
    try {
        std::rethrow_exception(error);
    } catch (const std::exception & e) {
        what = e.what();
    } catch (...) {
    }
    const std::lock_guard lock(mutex_);
    fail_locked(size() == 1 ? what : format("rank %d: %s", rank, what.c_str()));
}

void Rendezvous::leave(int rank) {
    const std::lock_guard lock(mutex_);
    left_[static_cast<size_t>(rank)] = true;
    ++n_left_;
    changed_.notify_all();
}

std::exception_ptr Rendezvous::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

bool Rendezvous::wait_all_left(std::chrono::milliseconds grace) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_left_ == size() || failure_; });
    return changed_.wait_for(lock, grace, [&] { return n_left_ == size(); });
}

}  // namespace gt
