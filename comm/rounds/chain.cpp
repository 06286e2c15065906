// comm/rounds/chain.cpp — see chain.h.
#include "comm/rounds/chain.h"

namespace gt {

const Commit * Chain::newest_commit() const {
    return !ahead_.empty() ? &ahead_.back().commit : head_commit_ ? &*head_commit_ : nullptr;
}

void Chain::start(uint64_t index, const Key32 & head, std::deque<ChainEntry> chain) {
    index_ = index;
    head_  = head;
    epoch_ = chain.back().commit.epoch;
    head_commit_.reset();
    ahead_.clear();
    for (ChainEntry & entry : chain) {
        if (entry.commit.index == index) {
            head_commit_ = std::move(entry.commit);
        } else if (entry.commit.index > index) {
            ahead_.push_back(std::move(entry));
        }
    }
}

Chain::Read Chain::read(Millis wait) {
    auto next = log_.read(newest() + 1, 0, wait);
    if (!next || next->commit.epoch < epoch_) {
        return Read::none;  // a lower epoch: its writer has been replaced (no atomic create)
    }
    Read          result = Read::appended;
    const Key32 & before = ahead_.empty() ? head_ : ahead_.back().digest;
    if (next->commit.previous != before) {
        if (ahead_.empty()) {
            return Read::forked;
        }
        auto other = log_.find(ahead_.back().commit.index, next->commit.previous);
        if (!other || other->commit.previous != ahead_.back().commit.previous) {
            return Read::forked;
        }
        ahead_.back() = std::move(*other);
        result        = Read::revised;
    }
    epoch_ = next->commit.epoch;
    ahead_.push_back(std::move(*next));
    return result;
}

bool Chain::revise() {
    const Commit & commit = ahead_.front().commit;
    if (ahead_.size() != 1 || commit.revision >= kMaxRevision) {
        return false;
    }
    auto revised = log_.read(commit.index, commit.revision + 1);
    if (!revised || revised->commit.previous != commit.previous) {
        return false;
    }
    ahead_.front() = std::move(*revised);
    return true;
}

void Chain::advance() {
    index_       = ahead_.front().commit.index;
    head_        = ahead_.front().digest;
    head_commit_ = std::move(ahead_.front().commit);
    ahead_.pop_front();
}

}  // namespace gt
