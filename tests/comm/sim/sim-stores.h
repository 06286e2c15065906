// tests/comm/sim/sim-stores.h — stores of simulated hosts: one that crashes, one that forwards.
#pragma once

#include "comm/store/store.h"

namespace gt::sim {

struct Crash {};  // the process is gone, between two operations on the store

// Forwards calls until it crashes, before or after the operation.
class CrashingStore : public Store {
public:
    CrashingStore(Store & inner, uint64_t seed) : inner_(inner), seed_(seed) {}

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        const bool after = tick();
        const bool won   = inner_.put(key, value, if_absent);
        finish(after);
        return won;
    }
    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        finish(tick());
        return inner_.get(key, wait);
    }
    std::vector<std::string> list(const std::string & prefix) override {
        finish(tick());
        return inner_.list(prefix);
    }
    void remove(const std::string & key) override {
        const bool after = tick();
        inner_.remove(key);
        finish(after);
    }

    double p_crash = 0;

private:
    bool tick() {
        const uint64_t n = n_++;
        if (double(random_uniform(random_bits(seed_, n, 1))) < p_crash / 2) {
            throw Crash();
        }
        return double(random_uniform(random_bits(seed_, n, 2))) < p_crash / 2;
    }
    static void finish(bool crash) {
        if (crash) {
            throw Crash();
        }
    }

    Store &  inner_;
    uint64_t seed_;
    uint64_t n_ = 0;
};

// Forwards every call; tests override some.
class ForwardingStore : public Store {
public:
    explicit ForwardingStore(Store & inner) : inner_(inner) {}

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        return inner_.put(key, value, if_absent);
    }
    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        return inner_.get(key, wait);
    }
    std::vector<std::string> list(const std::string & prefix) override {
        return inner_.list(prefix);
    }
    void remove(const std::string & key) override { inner_.remove(key); }

private:
    Store & inner_;
};

}  // namespace gt::sim
