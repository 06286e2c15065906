// tests/fake/flaky-store.h — a store that drops, delays, repeats and corrupts calls, by seed.
//
// The fault of call n is a function of (seed, n). A drop is a StoreError, before or after the call takes
// effect; a repeat puts twice; a corruption flips one bit of the result of get.
#pragma once

#include "comm/store/store.h"

#include <atomic>
#include <thread>

namespace gt {

struct FlakyOptions {
    uint64_t                  seed      = 1;
    double                    p_drop    = 0.1;
    double                    p_repeat  = 0.1;
    double                    p_delay   = 0.1;
    double                    p_corrupt = 0.0;
    std::chrono::milliseconds max_delay{20};
};

class FlakyStore : public Store {
public:
    FlakyStore(Store & inner, const FlakyOptions & options) : inner_(inner), options_(options) {}

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        const uint64_t n = before("put");
        if (chance(n, 1, options_.p_repeat)) {
            inner_.put(key, value, if_absent);
        }
        const bool won = inner_.put(key, value, if_absent);
        after(n);
        return won;
    }

    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        const uint64_t       n     = before("get");
        std::optional<Bytes> value = inner_.get(key, wait);
        after(n);
        if (value && !value->empty() && chance(n, 2, options_.p_corrupt)) {
            const uint64_t at = random_bits(options_.seed, n, 3);
            (*value)[at / 8 % value->size()] ^= uint8_t(1u << (at % 8));
            n_corrupted++;
        }
        return value;
    }

    std::vector<std::string> list(const std::string & prefix) override {
        const uint64_t           n    = before("list");
        std::vector<std::string> keys = inner_.list(prefix);
        after(n);
        return keys;
    }

    void remove(const std::string & key) override {
        const uint64_t n = before("remove");
        inner_.remove(key);
        after(n);
    }

    std::atomic<int> n_dropped{0}, n_corrupted{0};

private:
    bool chance(uint64_t n, uint64_t what, double p) const {
        return double(random_uniform(random_bits(options_.seed, n, what))) < p;
    }

    uint64_t before(const char * verb) {
        const uint64_t n = n_calls_++;
        if (chance(n, 4, options_.p_delay)) {
            const auto ms =
                random_bits(options_.seed, n, 5) % uint64_t(options_.max_delay.count() + 1);
            std::this_thread::sleep_for(std::chrono::milliseconds(ms));
        }
        if (chance(n, 6, options_.p_drop / 2)) {
            n_dropped++;
            throw StoreError(std::string("flaky: ") + verb + " was lost on its way");
        }
        return n;
    }

    void after(uint64_t n) {
        if (chance(n, 7, options_.p_drop / 2)) {
            n_dropped++;
            throw StoreError("flaky: the answer was lost on its way");
        }
    }

    Store &               inner_;
    FlakyOptions          options_;
    std::atomic<uint64_t> n_calls_{0};
};

}  // namespace gt
