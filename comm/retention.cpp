// comm/retention.cpp — a few rounds per call, oldest first.
#include "comm/retention.h"

#include <algorithm>

namespace gt {

constexpr int kRoundsPerCall = 4;

Retention::Retention(Store & store, const RunKeys & keys)
    : store_(store), keys_(keys), paths_(keys.run), log_(store, keys) {}

void Retention::start(uint64_t floor) {
    floor_ = done_ = floor;
    for (const std::string & key : store_.list(paths_.root + "commit/")) {
        const std::string prefix = paths_.root + "commit/";
        const size_t      dash   = key.rfind('-');
        const auto        index  = parse_tail(prefix, key.substr(0, dash));
        done_                    = std::min(done_, index.value_or(done_));
    }
}

void Retention::commit(const Commit & commit) {
    if (commit.complete && (last_complete_ == kNone || commit.complete->index > last_complete_)) {
        complete_before_ = last_complete_;
        last_complete_   = commit.complete->index;
    }
}

void Retention::work() {
    if (complete_before_ != kNone && complete_before_ > floor_) {
        const uint64_t   floor = complete_before_;
        const RecordHead head{Kind::floor, floor, "sequencer", 0};
        store_.put(paths_.floor(floor), make_record(keys_, head, {}));
        const uint64_t before = floor_;
        floor_                = floor;
        if (before != 0) {
            store_.remove(paths_.floor(before));
        }
    }
    for (int i = 0; i < kRoundsPerCall && done_ < floor_; ++i) {
        remove_round(done_);
        ++done_;
    }
}

void Retention::remove_all(const std::string & prefix) {
    for (const std::string & key : store_.list(prefix)) {
        store_.remove(key);
    }
}

// Some of its messages were served by their senders.
static bool is_direct(const Commit & commit) {
    return std::any_of(commit.messages.begin(), commit.messages.end(), [](const auto & message) {
        return !message.where.empty();
    });
}

void Retention::remove_round(uint64_t index) {
    const auto entry = log_.read(index);
    remove_all(paths_.messages(index));
    if (entry) {
        is_direct_ = is_direct_ || is_direct(entry->commit);
    }
    if (is_direct_) {
        remove_all(paths_.helds(index));
    }
    if (entry && !entry->commit.writers.empty()) {
        const std::string number = paths_.messages(index).substr((paths_.root + "message/").size());
        remove_all(paths_.root + "part/" + number);
        remove_all(paths_.root + "ready/" + number);
    }
    if (entry && entry->commit.phase != 0) {
        remove_all(paths_.shards(index));
    }
    for (uint32_t revision = 1; entry && log_.read(index, revision); ++revision) {
        store_.remove(paths_.commit(index, revision));
        remove_all(paths_.lost(index, revision - 1, ""));
    }
    store_.remove(paths_.commit(index, 0));
}

}  // namespace gt
