// comm/store/store-cache.cpp — a first-in, first-out cache in front of a store.
#include "comm/store/store-cache.h"

#include "comm/wire/frame.h"

#include <deque>
#include <map>
#include <mutex>

namespace gt {

namespace {

class CachedStore : public Store {
public:
    CachedStore(std::unique_ptr<Store> inner, const std::string & prefix, size_t max_bytes)
        : inner_(std::move(inner)), prefix_(prefix), max_bytes_(max_bytes) {}

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        const bool won = inner_->put(key, value, if_absent);
        if (won) {
            keep(key, value);
        }
        return won;
    }

    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        {
            const std::lock_guard lock(mutex_);
            if (const auto it = values_.find(key); it != values_.end()) {
                return it->second;
            }
        }
        auto value = inner_->get(key, wait);
        if (value) {
            keep(key, *value);
        }
        return value;
    }

    std::vector<std::string> list(const std::string & prefix) override {
        return inner_->list(prefix);
    }

    void remove(const std::string & key) override {
        inner_->remove(key);
        const std::lock_guard lock(mutex_);
        drop(key);
    }

private:
    void keep(const std::string & key, std::span<const uint8_t> value) {
        if (!key.starts_with(prefix_) || value.size() > max_bytes_ || !parse_frame(value)) {
            return;
        }
        const std::lock_guard lock(mutex_);
        drop(key);
        n_bytes_ += value.size();
        values_[key] = Bytes(value.begin(), value.end());
        order_.push_back(key);
        while (n_bytes_ > max_bytes_) {
            drop(std::string(order_.front()));
        }
    }

    void drop(const std::string & key) {
        const auto it = values_.find(key);
        if (it != values_.end()) {
            n_bytes_ -= it->second.size();
            values_.erase(it);
            std::erase(order_, key);
        }
    }

    std::unique_ptr<Store>       inner_;
    std::string                  prefix_;
    size_t                       max_bytes_;
    std::mutex                   mutex_;
    std::map<std::string, Bytes> values_;
    std::deque<std::string>      order_;
    size_t                       n_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Store>
make_cached_store(std::unique_ptr<Store> inner, const std::string & prefix, size_t max_bytes) {
    return std::make_unique<CachedStore>(std::move(inner), prefix, max_bytes);
}

}  // namespace gt
