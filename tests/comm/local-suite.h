// tests/comm/local-suite.h — the contract of LocalGroup; test-local.cpp runs it for each implementation.
#pragma once

#include "comm/local/run-ranks.h"
#include "tests/catch.h"

#include <atomic>
#include <cmath>
#include <csignal>
#include <pthread.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace gt::suite {

using RankFn = std::function<void(LocalGroup & ranks)>;
// Runs fn on n ranks of the kind under test.
using Run = std::function<void(int n, const RankFn & fn, const RanksOptions & options)>;

// Never inlined: contracted into the sum below it would round differently.
[[gnu::noinline]] inline float value(int rank, size_t i) {
    return std::sin(0.37f * static_cast<float>(i) + static_cast<float>(rank)) *
           (1.0f + 10.0f * rank);
}

inline std::vector<float> values(int rank, size_t n) {
    std::vector<float> v(n);
    for (size_t i = 0; i < n; ++i) {
        v[i] = value(rank, i);
    }
    return v;
}

// The sum of all ranks' values, in rank order.
inline float sum(int n_ranks, size_t i) {
    float s = value(0, i);
    for (int r = 1; r < n_ranks; ++r) {
        s += value(r, i);
    }
    return s;
}

inline std::vector<std::vector<int64_t>> offsets_for(int n) {
    std::vector<std::vector<int64_t>> all(5, std::vector<int64_t>{0});
    for (int r = 0; r < n; ++r) {
        all[0].push_back(all[0].back() + 64);                        // equal
        all[1].push_back(all[1].back() + 5 + 7 * r);                 // uneven
        all[2].push_back(all[2].back() + (r % 2 == 0 ? 0 : 9000));   // some have nothing
        all[3].push_back(0);                                         // all have nothing
        all[4].push_back(all[4].back() + (r == n - 1 ? 10001 : 0));  // one has all
    }
    return all;
}

// What run_ranks threw, and how long it took; "" if nothing.
struct Outcome {
    std::string message;
    double      seconds = 0;
};
inline Outcome outcome(const Run & run, int n, const RankFn & fn) {
    const auto start = std::chrono::steady_clock::now();
    Outcome    o;
    try {
        run(n, fn, {});
    } catch (const Error & e) {
        o.message = e.what();
    }
    o.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return o;
}

inline void check_results(const Run & run) {
    for (int n = 1; n <= 4; ++n) {
        for (const auto & offsets : offsets_for(n)) {
            for (const bool in_place : {false, true}) {
                std::atomic<int> n_wrong{0}, n_ran{0};
                run(n,
                    [&](LocalGroup & ranks) {
                        const int          r     = ranks.rank();
                        const auto         begin = static_cast<size_t>(offsets[r]);
                        const auto         count = static_cast<size_t>(offsets[r + 1]) - begin;
                        std::vector<float> full  = values(r, static_cast<size_t>(offsets.back()));
                        std::vector<float> own(count);
                        const auto         shard =
                            in_place ? std::span(full).subspan(begin, count) : std::span(own);
                        n_wrong += ranks.size() != n;

                        ranks.reduce_scatter(full, offsets, shard);
                        for (size_t i = 0; i < count; ++i) {
                            n_wrong += shard[i] != sum(n, begin + i);
                        }
                        ranks.all_gather(shard, offsets, full);
                        for (size_t i = 0; i < full.size(); ++i) {
                            n_wrong += full[i] != sum(n, i);
                        }
                        full = values(r, full.size());
                        ranks.all_reduce(full);
                        for (size_t i = 0; i < full.size(); ++i) {
                            n_wrong += full[i] != sum(n, i);
                        }
                        for (int root = 0; root < n; ++root) {
                            std::vector<uint8_t> bytes(77, static_cast<uint8_t>(r + 1));
                            ranks.broadcast(bytes, root);
                            n_wrong +=
                                bytes != std::vector<uint8_t>(77, static_cast<uint8_t>(root + 1));
                        }
                        std::vector<uint8_t> none;
                        ranks.broadcast(none, n - 1);
                        ranks.barrier();
                        ++n_ran;
                    },
                    {});
                CHECK(n_wrong == 0);
                CHECK(n_ran == n);
            }
        }
    }
}

// Many steps with ranks of different speed: no call may overtake another.
inline void check_order(const Run & run) {
    std::atomic<int> n_wrong{0};
    run(3,
        [&](LocalGroup & ranks) {
            const std::vector<int64_t> offsets{0, 3, 4, 10};
            std::vector<float> full(10), shard(ranks.rank() == 0 ? 3 : ranks.rank() == 1 ? 1 : 6);
            for (int step = 0; step < 200; ++step) {
                std::fill(full.begin(), full.end(), static_cast<float>(step + ranks.rank()));
                if (step % 50 == ranks.rank()) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(2));
                }
                ranks.reduce_scatter(full, offsets, shard);
                ranks.all_gather(shard, offsets, full);
                for (const float f : full) {
                    n_wrong += f != static_cast<float>(3 * step + 3);
                }
                ranks.all_reduce(full);
                for (const float f : full) {
                    n_wrong += f != static_cast<float>(3 * (3 * step + 3));
                }
            }
        },
        {});
    CHECK(n_wrong == 0);
}

// A rank may call from another thread, as long as its own waits or computes.
inline void check_other_threads(const Run & run) {
    std::atomic<int> n_wrong{0};
    run(2,
        [&](LocalGroup & ranks) {
            const std::vector<int64_t> offsets{0, 3, 8};
            std::vector<float>         full = values(ranks.rank(), 8);
            std::vector<float>         shard(ranks.rank() == 0 ? 3 : 5);
            std::thread                other([&] {
                ranks.reduce_scatter(full, offsets, shard);
                ranks.all_gather(shard, offsets, full);
            });
            other.join();
            for (size_t i = 0; i < full.size(); ++i) {
                n_wrong += full[i] != sum(2, i);
            }
        },
        {});
    CHECK(n_wrong == 0);
}

inline void work_forever(LocalGroup & ranks) {
    const auto           n = static_cast<size_t>(ranks.size());
    std::vector<int64_t> offsets(n + 1);
    std::vector<float>   full(8 * n), shard(8);
    for (size_t r = 0; r <= n; ++r) {
        offsets[r] = static_cast<int64_t>(8 * r);
    }
    for (;;) {
        ranks.reduce_scatter(full, offsets, shard);
        ranks.all_gather(shard, offsets, full);
        ranks.barrier();
    }
}

inline void check_failures(const Run & run) {
    SECTION("an exception in a rank is the one message, and names the rank") {
        for (int bad = 0; bad < 4; ++bad) {
            const Outcome o = outcome(run, 4, [&](LocalGroup & ranks) {
                if (ranks.rank() == bad) {
                    ranks.barrier();
                    throw std::bad_alloc();
                }
                ranks.barrier();
                work_forever(ranks);
            });
            CHECK(o.message == format("rank %d: std::bad_alloc", bad));
            CHECK(o.seconds < 3);
        }
    }
    SECTION("a rank that returns early ends the wait of the others") {
        const Outcome o = outcome(run, 3, [](LocalGroup & ranks) {
            if (ranks.rank() != 1) {
                work_forever(ranks);
            }
        });
        CHECK(o.message.find("rank 1 ended while rank ") == 0);
        CHECK(o.seconds < 3);
    }
    SECTION("a rank whose thread is ended ends the wait of the others") {
        const Outcome o = outcome(run, 3, [](LocalGroup & ranks) {
            if (ranks.rank() == 2) {
                ranks.barrier();
                pthread_exit(nullptr);
            }
            ranks.barrier();
            work_forever(ranks);
        });
        CHECK(o.message.find("rank 2 ended while rank ") == 0);
        CHECK(o.seconds < 3);
    }
    SECTION("ranks that make different calls are told so") {
        const Outcome o = outcome(run, 2, [](LocalGroup & ranks) {
            std::vector<uint8_t> bytes(ranks.rank() == 0 ? 8 : 9);
            ranks.broadcast(bytes, 0);
        });
        CHECK(o.message == "ranks disagree: rank 1 calls broadcast with other sizes than rank 0");
        const Outcome p = outcome(run, 2, [](LocalGroup & ranks) {
            std::vector<uint8_t> bytes(8);
            ranks.rank() == 0 ? ranks.broadcast(bytes, 0) : ranks.barrier();
        });
        CHECK(p.message == "ranks disagree: rank 0 calls broadcast, rank 1 barrier");
        const Outcome q = outcome(run, 2, [](LocalGroup & ranks) {
            std::vector<float> data(ranks.rank() == 0 ? 8 : 9);
            ranks.all_reduce(data);
        });
        CHECK(q.message == "ranks disagree: rank 1 calls all_reduce with other sizes than rank 0");
    }
    SECTION("a group of one tells its failure plainly") {
        CHECK(outcome(run, 1, [](LocalGroup &) { throw Error("no data"); }).message == "no data");
    }
    SECTION("a rank that is busy elsewhere cannot hold up the end of the process") {
        const auto  start = std::chrono::steady_clock::now();
        const pid_t pid   = fork();
        if (pid == 0) {
            (void) freopen("/dev/null", "w", stderr);
            run(2,
                [](LocalGroup & ranks) {
                    if (ranks.rank() == 1) {
                        throw Error("out of memory");
                    }
                    std::this_thread::sleep_for(std::chrono::seconds(60));
                },
                {.grace = std::chrono::milliseconds(200)});
            _exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 1);
        CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    }
}

}  // namespace gt::suite
