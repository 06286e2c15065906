// comm/local/run-ranks.cpp — see run-ranks.h.
#include "comm/local/run-ranks.h"

#include "comm/local/local-group.h"

#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <thread>

namespace gt {

namespace {

using MakeGroup = std::function<std::unique_ptr<LocalGroup>(Rendezvous & meeting, int rank)>;
using RankFn    = std::function<void(LocalGroup & ranks)>;

// Reports the end of a rank, however its thread ends.
struct Leaver {
    ~Leaver() { meeting.leave(rank); }
    Rendezvous & meeting;
    int          rank;
};

// The sanitizer reports a null reference for the object of a forced unwind, which has no address.
__attribute__((no_sanitize("undefined"))) void
run_rank(Rendezvous & meeting, int rank, const MakeGroup & make_group, const RankFn & fn) {
    const Leaver leaver{meeting, rank};
    std::unique_ptr<LocalGroup>
        group;  // outlives the try block: destroyed differently after a failure
    try {
        group = make_group(meeting, rank);
        fn(*group);
    } catch (const abi::__forced_unwind &) {
        throw;  // the thread was cancelled or called pthread_exit: leaver reports it
    } catch (...) {
        meeting.fail(rank, std::current_exception());
    }
}

void run(int n, const MakeGroup & make_group, const RankFn & fn, const RanksOptions & options) {
    Rendezvous               meeting(n);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < n; ++rank) {
        threads.emplace_back([&, rank] { run_rank(meeting, rank, make_group, fn); });
    }
    if (!meeting.wait_all_left(options.grace)) {
        std::string what = "a rank failed";
        try {
            std::rethrow_exception(meeting.failure());
        } catch (const std::exception & e) {
            what = e.what();
        }
        std::fprintf(stderr, "%s\n", what.c_str());
        std::_Exit(1);
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    if (meeting.failure()) {
        std::rethrow_exception(meeting.failure());
    }
}

}  // namespace

void run_ranks(int n, const RankFn & fn, const RanksOptions & options) {
    if (n < 1) {
        throw Error(format("%d ranks: a host needs at least one", n));
    }
    run(n, make_local_threads, fn, options);
}

void run_ranks_nccl(
    const std::vector<int> & devices, const RankFn & fn, const RanksOptions & options
) {
    if (devices.empty()) {
        throw Error("no CUDA device given: name at least one, as in --device cuda:0");
    }
    const auto clique = make_nccl_clique(devices, options.nccl);
    const auto make   = [&](Rendezvous & meeting, int rank) {
        return make_local_nccl(clique, meeting, rank);
    };
    run(static_cast<int>(devices.size()), make, fn, options);
}

}  // namespace gt
