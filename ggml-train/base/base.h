// ggml-train/base/base.h — used by every folder: bytes, errors, random numbers, worker threads.
//
// No ggml header is included here, so that comm/ and the hub build without ggml.
// Read next: local-group.h and peers.h (communication between ranks and hosts), optimizer.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gt {

extern const char * const kVersion;

using Bytes = std::vector<uint8_t>;

// Bad input: an invalid flag, a truncated file, a full disk. The message names the thing, the place and
// the next move. Caught once, in run_tool.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// printf into a std::string.
[[gnu::format(printf, 1, 2)]] std::string format(const char * fmt, ...);

[[noreturn]] void check_failed(const char * what, const char * why, const char * file, int line);

// Checks for bugs of ours: prints condition and place, then aborts; in release builds too.
#define GT_CHECK(cond, why)                                                                        \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            ::gt::check_failed(#cond, why, __FILE__, __LINE__);                                    \
        }                                                                                          \
    } while (0)

// Counter-based random bits: a pure function of its arguments, the same on every machine.
uint64_t random_bits(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0);

// Uniform in [0, 1), 24 bits.
float random_uniform(uint64_t bits);

// 64-bit digest of a string or of raw bytes; not cryptographic. The same on every machine, and on
// devices (cuda/demo.h, digests).
uint64_t digest64(std::span<const uint8_t> data, uint64_t seed = 0);
uint64_t digest64(const std::string & text, uint64_t seed = 0);

// Of a clock that never jumps.
double steady_seconds();

// A fixed set of threads that run one function together. The calling thread is worker 0.
class Workers {
public:
    explicit Workers(int n_threads);
    ~Workers();
    Workers(const Workers &)             = delete;
    Workers & operator=(const Workers &) = delete;

    int size() const;

    // Calls fn(i, size()) once on each worker and returns when all are done. An exception thrown
    // by a worker is rethrown here.
    void run(const std::function<void(int i, int n)> & fn);

    // Splits [0, n) into contiguous ranges of equal size, one per worker: fn(begin, end).
    void split(int64_t n, const std::function<void(int64_t begin, int64_t end)> & fn);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gt
