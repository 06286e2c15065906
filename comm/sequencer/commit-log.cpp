// comm/sequencer/commit-log.cpp — walks the chain; a commit's successor decides which revision is valid.
#include "comm/sequencer/commit-log.h"

#include <algorithm>

namespace gt {

constexpr int kAttempts = 4;

std::optional<ChainEntry>
CommitLog::read(uint64_t index, uint32_t revision, std::chrono::milliseconds wait) const {
    std::string why;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {  // a transfer may be damaged, too
        const auto value = store_.get(paths_.commit(index, revision), wait);
        if (!value) {
            return std::nullopt;
        }
        if (auto commit = parse_commit(keys_, index, revision, *value, &why)) {
            return ChainEntry{std::move(*commit), digest256(*value)};
        }
    }
    throw StoreError(why + "; check that all hosts and the hub have the same key and version");
}

std::optional<ChainEntry> CommitLog::find(uint64_t index, const Key32 & digest) const {
    for (uint32_t revision = 0; revision <= kMaxRevision; ++revision) {
        auto entry = read(index, revision);
        if (!entry || entry->digest == digest) {
            return entry;
        }
    }
    return std::nullopt;
}

uint64_t CommitLog::floor() const {
    uint64_t floor = 0;
    for (const std::string & key : store_.list(paths_.floors())) {
        floor = std::max(floor, paths_.parse_floor(key).value_or(0));
    }
    return floor;
}

std::deque<ChainEntry> CommitLog::load() const {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const uint64_t         from = floor();
        std::deque<ChainEntry> chain;
        if (auto first = read(from)) {
            chain.push_back(std::move(*first));
        } else if (from == 0) {
            return chain;
        } else {
            continue;  // the floor has been raised meanwhile
        }
        if (extend(chain)) {
            return chain;
        }
    }
    throw StoreError(
        "the chain of commits has a gap; check that no other run uses the same store and key"
    );
}

bool CommitLog::extend(std::deque<ChainEntry> & chain) const {
    while (true) {
        const uint64_t index = chain.back().commit.index;
        auto           next  = read(index + 1);
        if (!next) {
            break;
        }
        if (next->commit.previous != chain.back().digest) {
            auto right = find(index, next->commit.previous);
            if (!right ||
                (chain.size() > 1 && right->commit.previous != chain[chain.size() - 2].digest)) {
                return false;
            }
            chain.back() = std::move(*right);
        }
        chain.push_back(std::move(*next));
    }
    // the newest has no successor yet: its highest revision is valid
    while (auto revised = read(chain.back().commit.index, chain.back().commit.revision + 1)) {
        chain.back() = std::move(*revised);
        if (chain.back().commit.revision >= kMaxRevision) {
            break;
        }
    }
    return true;
}

}  // namespace gt
