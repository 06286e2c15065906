// comm/sequencer/retention.cpp — see retention.h.
#include "comm/sequencer/retention.h"

#include <algorithm>
#include <utility>

namespace gt {

constexpr int      kRoundsPerCall = 4;
constexpr uint64_t kKeptRounds    = 8;  // members may be this far behind

Retention::Retention(Store & store, const RunKeys & keys)
    : store_(store), keys_(keys), paths_(keys.run), log_(store, keys) {}

void Retention::start(uint64_t floor) {
    floor_ = done_ = floor;
    for (const std::string & key : store_.list(paths_.commits())) {
        const auto commit = paths_.parse_commit(key);
        done_             = std::min(done_, commit.value_or(done_));
    }
}

void Retention::raise(uint64_t floor) {
    const RecordHead head{Kind::floor, floor, "sequencer", 0};
    store_.put(paths_.floor(floor), make_record(keys_, head, {}));
    if (const uint64_t old = std::exchange(floor_, floor); old != 0 && old != floor) {
        store_.remove(paths_.floor(old));
    }
}

void Retention::commit(const Commit & commit) {
    newest_ = commit.index;
    if (!commit.writers.empty()) {
        if (ordered_ != kNone && ordered_ != last_complete_) {
            dropped_.push_back(ordered_);
        }
        ordered_  = commit.index;
        is_clean_ = false;
    }
    if (commit.complete && (last_complete_ == kNone || commit.complete->index > last_complete_)) {
        complete_before_ = last_complete_;
        last_complete_   = commit.complete->index;
        listed_at_       = commit.index;
        is_clean_        = false;
    }
}

void Retention::work() {
    const uint64_t before  = complete_before_ == kNone ? 0 : complete_before_;
    const uint64_t last    = last_complete_ == kNone ? 0 : last_complete_;
    const bool     is_full = store_.is_nearly_full();
    const bool     is_old  = newest_ - listed_at_ > std::max(kKeptRounds, (last - before) / 4);
    const uint64_t floor   = is_full || is_old ? last : before;
    if (floor > floor_) {
        raise(floor);
    }
    for (int i = 0; i < kRoundsPerCall && done_ < floor_; ++i) {
        remove_round(done_);
        ++done_;
    }
    drop_slices();
    thin_ = std::max(thin_, floor_);
    for (int i = 0; i < kRoundsPerCall && is_full && thin_ + kKeptRounds < newest_; ++i) {
        remove_all(paths_.messages(thin_));
        remove_all(paths_.shards(thin_));
        ++thin_;
    }
}

// Of orders that others have replaced. Some come late: removed again when a later one is complete.
void Retention::drop_slices() {
    for (const uint64_t index : is_clean_ ? std::vector<uint64_t>() : dropped_) {
        remove_all(paths_.parts(index));
        remove_all(paths_.readies(index));
    }
    is_clean_ = true;
    if (ordered_ == last_complete_) {
        dropped_.clear();
    }
}

void Retention::remove_all(const std::string & prefix) {
    for (const std::string & key : store_.list(prefix)) {
        store_.remove(key);
    }
}

// Some messages were served by their senders.
static bool is_direct(const Commit & commit) {
    return std::any_of(commit.messages.begin(), commit.messages.end(), [](const auto & message) {
        return !message.where.empty();
    });
}

void Retention::remove_round(uint64_t index) {
    const auto entry = log_.find(index);
    remove_all(paths_.messages(index));
    if (entry) {
        is_direct_ = is_direct_ || is_direct(entry->commit);
    }
    if (is_direct_) {
        remove_all(paths_.held(index));
    }
    if (entry && !entry->commit.writers.empty()) {
        remove_all(paths_.parts(index));
        remove_all(paths_.readies(index));
    }
    if (entry && entry->commit.phase != Phase::single) {
        remove_all(paths_.shards(index));
    }
    store_.remove(paths_.commit(index));
}

}  // namespace gt
