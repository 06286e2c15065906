#include "ggml-train/base/base.h"

#include "ggml-train/base/digests.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

namespace gt {

const char * const kVersion = GT_VERSION;

std::string format(const char * fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    std::string text(std::vsnprintf(nullptr, 0, fmt, args), '\0');
    std::vsnprintf(text.data(), text.size() + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

void check_failed(const char * what, const char * why, const char * file, int line) {
    std::fprintf(stderr, "%s:%d: check failed: %s (%s)\n", file, line, what, why);
    std::abort();
}

double steady_seconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

// The finaliser of splitmix64: every input bit reaches every output bit.
static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t random_bits(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;
    uint64_t           x       = mix(seed + kGolden);
    x                          = mix(x ^ (a + 1) * kGolden);
    x                          = mix(x ^ (b + 2) * kGolden);
    return mix(x ^ (c + 3) * kGolden);
}

float random_uniform(uint64_t bits) {
    return static_cast<float>(bits >> 40) * (1.0f / 16777216.0f);
}

// The digests of N pieces of equal size, one behind the other, with the seeds seed, seed + 1, ...
template <int N>
static void digest_side_by_side(const uint8_t * data, size_t size, uint64_t seed, uint64_t * out) {
    uint64_t h[N];
    for (int k = 0; k < N; ++k) {
        h[k] = mix((seed + static_cast<uint64_t>(k)) ^ (size * 0x9e3779b97f4a7c15ull));
    }
    const size_t n = size / 8;
    for (size_t i = 0; i < n; ++i) {
        for (int k = 0; k < N; ++k) {
            uint64_t word = 0;
            std::memcpy(&word, data + static_cast<size_t>(k) * size + 8 * i, 8);
            h[k] = (h[k] ^ word) * 0x9fb21c651e98df25ull;
            h[k] ^= h[k] >> 32;
        }
    }
    for (int k = 0; k < N; ++k) {
        uint64_t tail = 0;
        for (size_t i = 8 * n; i < size; ++i) {
            tail = tail << 8 | data[static_cast<size_t>(k) * size + i];
        }
        out[k] = mix(h[k] ^ tail);
    }
}

uint64_t digest64(std::span<const uint8_t> data, uint64_t seed) {
    uint64_t digest = 0;
    digest_side_by_side<1>(data.data(), data.size(), seed, &digest);
    return digest;
}

std::vector<uint64_t> digests64(std::span<const uint8_t> data, size_t block_bytes, uint64_t seed) {
    constexpr size_t      kBeside = 8;
    const size_t          n_whole = data.size() / block_bytes;
    std::vector<uint64_t> digests((data.size() + block_bytes - 1) / block_bytes);
    size_t                i = 0;
    for (; i + kBeside <= n_whole; i += kBeside) {
        digest_side_by_side<kBeside>(
            data.data() + i * block_bytes, block_bytes, seed + i, &digests[i]
        );
    }
    for (; i < digests.size(); ++i) {
        const size_t begin = i * block_bytes, end = std::min(data.size(), begin + block_bytes);
        digests[i] = digest64(data.subspan(begin, end - begin), seed + i);
    }
    return digests;
}

uint64_t digest64(const std::string & text, uint64_t seed) {
    return digest64({reinterpret_cast<const uint8_t *>(text.data()), text.size()}, seed);
}

struct Workers::Impl {
    std::vector<std::thread>              threads;
    std::mutex                            mutex;
    std::condition_variable               start, done;
    const std::function<void(int, int)> * fn         = nullptr;
    uint64_t                              generation = 0;
    int                                   n_running  = 0;
    bool                                  stop       = false;
    std::exception_ptr                    error;

    void call(int i, int n) {
        try {
            (*fn)(i, n);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!error) {
                error = std::current_exception();
            }
        }
    }

    void loop(int i, int n) {
        for (uint64_t seen = 0;;) {
            {
                std::unique_lock lock(mutex);
                start.wait(lock, [&] { return stop || generation != seen; });
                if (stop) {
                    return;
                }
                seen = generation;
            }
            call(i, n);
            const std::lock_guard lock(mutex);
            if (--n_running == 0) {
                done.notify_one();
            }
        }
    }
};

Workers::Workers(int n_threads) : impl_(std::make_unique<Impl>()) {
    GT_CHECK(n_threads >= 1, "a pool has at least the calling thread");
    for (int i = 1; i < n_threads; ++i) {
        impl_->threads.emplace_back([this, i, n_threads] { impl_->loop(i, n_threads); });
    }
}

Workers::~Workers() {
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->stop = true;
    }
    impl_->start.notify_all();
    for (std::thread & thread : impl_->threads) {
        thread.join();
    }
}

int Workers::size() const {
    return static_cast<int>(impl_->threads.size()) + 1;
}

void Workers::run(const std::function<void(int, int)> & fn) {
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->fn        = &fn;
        impl_->n_running = size() - 1;
        impl_->error     = nullptr;
        ++impl_->generation;
    }
    impl_->start.notify_all();
    impl_->call(0, size());
    std::unique_lock lock(impl_->mutex);
    impl_->done.wait(lock, [&] { return impl_->n_running == 0; });
    if (impl_->error) {
        std::rethrow_exception(impl_->error);
    }
}

void Workers::split(int64_t n, const std::function<void(int64_t, int64_t)> & fn) {
    run([&](int i, int parts) {
        const int64_t begin = n * i / parts, end = n * (i + 1) / parts;
        if (begin < end) {
            fn(begin, end);
        }
    });
}

}  // namespace gt
