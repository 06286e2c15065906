// tests/fake/store-memory.cpp — see store-memory.h.
#include "tests/fake/store-memory.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

namespace gt {

namespace {

class MemoryStore : public Store {
public:
    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        check_key(key);
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  found = values_.find(key);
        if (if_absent && found != values_.end()) {
            return std::equal(
                found->second.begin(), found->second.end(), value.begin(), value.end()
            );
        }
        values_[key] = Bytes(value.begin(), value.end());
        arrived_.notify_all();
        return true;
    }

    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        check_key(key);
        std::unique_lock<std::mutex> lock(mutex_);
        const auto                   there = [&] { return values_.contains(key); };
        if (!arrived_.wait_for(lock, wait, there)) {
            return std::nullopt;
        }
        return values_[key];
    }

    std::vector<std::string> list(const std::string & prefix) override {
        std::lock_guard<std::mutex> lock(mutex_);
        std::vector<std::string>    keys;
        for (auto it = values_.lower_bound(prefix); it != values_.end(); ++it) {
            if (!it->first.starts_with(prefix)) {
                break;
            }
            keys.push_back(it->first);
        }
        return keys;
    }

    void remove(const std::string & key) override {
        check_key(key);
        std::lock_guard<std::mutex> lock(mutex_);
        values_.erase(key);
    }

private:
    std::mutex                   mutex_;
    std::condition_variable      arrived_;
    std::map<std::string, Bytes> values_;
};

}  // namespace

std::unique_ptr<Store> make_memory_store() {
    return std::make_unique<MemoryStore>();
}

}  // namespace gt
