// comm/rounds/chain.cpp — see chain.h.
#include "comm/rounds/chain.h"

#include <algorithm>

namespace gt {

constexpr size_t kLast = 4;  // commits kept, to put them back

const Commit * Chain::head_commit() const {
    return last_.empty() ? nullptr : &last_.back().commit;
}

const Commit * Chain::find(uint64_t index) const {
    for (const auto * entries : {&last_, &ahead_}) {
        for (const ChainEntry & entry : *entries) {
            if (entry.commit.index == index) {
                return &entry.commit;
            }
        }
    }
    return nullptr;
}

const Commit * Chain::newest_commit() const {
    return ahead_.empty() ? head_commit() : &ahead_.back().commit;
}

void Chain::start(uint64_t index, const Key32 & head, std::deque<ChainEntry> chain) {
    index_ = index;
    head_  = head;
    last_.clear();
    ahead_.clear();
    for (ChainEntry & entry : chain) {
        (entry.commit.index > index ? ahead_ : last_).push_back(std::move(entry));
    }
    if (!last_.empty() && last_.back().commit.index != index) {
        last_.clear();
    }
    last_.erase(last_.begin(), last_.end() - static_cast<long>(std::min(last_.size(), kLast)));
}

bool Chain::put_back() const {
    bool is_ours = true;
    for (const auto * entries : {&last_, &ahead_}) {
        for (const ChainEntry & entry : *entries) {
            is_ours = log_.put_back(entry);
        }
    }
    return is_ours;  // the newest: older ones may belong to a chain that ends before it
}

Chain::Read Chain::read(Millis wait) {
    auto next = log_.read(newest() + 1, wait);
    if (!next) {
        return Read::none;
    }
    const Key32 previous = next->commit.previous;
    if (!append(ahead_, std::move(*next)) || (ahead_.size() == 1 && previous != head_)) {
        return Read::forked;
    }
    return Read::appended;
}

void Chain::advance() {
    index_ = ahead_.front().commit.index;
    head_  = ahead_.front().digest;
    last_.push_back(std::move(ahead_.front()));
    ahead_.pop_front();
    if (last_.size() > kLast) {
        last_.pop_front();
    }
}

}  // namespace gt
