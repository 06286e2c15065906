// comm/sequencer/commit-log.cpp — walks the chain.
#include "comm/sequencer/commit-log.h"

#include <algorithm>
#include <set>

namespace gt {

constexpr int kAttempts = 4;

std::optional<ChainEntry> CommitLog::read(uint64_t index, std::chrono::milliseconds wait) const {
    std::string why;
    bool        is_ours = false;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {  // a transfer may be damaged, too
        auto value = store_.get(paths_.commit(index), wait);
        if (!value) {
            return std::nullopt;
        }
        if (auto commit = parse_commit(keys_, index, *value, &why)) {
            return ChainEntry{std::move(*commit), digest256(*value), std::move(*value)};
        }
        const RecordHead head{.kind = Kind::commit, .index = index};
        is_ours = is_ours || parse_record(keys_, head, *value);
    }
    why += "; check that all hosts and the hub have the same key and version";
    if (is_ours) {
        throw StoreError(why);
    }
    throw BadCommit(index, why);
}

std::optional<ChainEntry> CommitLog::find(uint64_t index) const {
    try {
        return read(index);
    } catch (const BadCommit &) {
        return std::nullopt;
    }
}

bool CommitLog::discard(const BadCommit & bad) const {
    const bool is_followed = find(bad.index + 1).has_value();
    if (!is_followed) {
        store_.remove(paths_.commit(bad.index));
    }
    return !is_followed;
}

uint64_t CommitLog::floor() const {
    uint64_t floor = 0;
    for (const std::string & key : store_.list(paths_.floors())) {
        const uint64_t   index = paths_.parse_floor(key).value_or(0);
        const auto       value = index > floor ? store_.get(key) : std::nullopt;
        const RecordHead head{Kind::floor, index, "sequencer", 0};
        floor = value && parse_record(keys_, head, *value) ? index : floor;
    }
    return floor;
}

// The floor is read after the commits: it may rise, and what is below it is removed.
bool CommitLog::has_all_until(uint64_t index) const {
    std::set<uint64_t> indices;
    for (const std::string & key : store_.list(paths_.commits())) {
        if (const auto commit = paths_.parse_commit(key)) {
            indices.insert(*commit);
        }
    }
    for (uint64_t i = floor(); i <= index; ++i) {
        if (!indices.contains(i)) {
            return false;
        }
    }
    return true;
}

bool CommitLog::have_left(const Commit & commit, const std::string & except) const {
    return std::all_of(commit.hosts.begin(), commit.hosts.end(), [&](const CommitHost & host) {
        return !host.member || host.name == except ||
               store_.get(paths_.leave(host.name, host.incarnation));
    });
}

bool CommitLog::put_back(const ChainEntry & entry) const {
    return store_.put(paths_.commit(entry.commit.index), entry.value, true);
}

bool CommitLog::retain(uint64_t & index) const {
    auto first = find(index);
    if (!first) {
        return false;
    }
    Key32    digest = first->digest;
    uint64_t end    = index + 1;
    for (auto next = find(end); next && next->commit.previous == digest; next = find(end)) {
        digest = next->digest;
        ++end;
    }
    for (const std::string & key : store_.list(paths_.commits())) {
        if (const auto commit = paths_.parse_commit(key); commit && *commit >= end) {
            store_.remove(key);
        }
    }
    for (const uint64_t low = floor(); index > low; --index) {
        auto before = find(index - 1);
        if (!before || before->digest != first->commit.previous) {
            break;
        }
        first = std::move(before);
    }
    return true;
}

bool append(std::deque<ChainEntry> & chain, ChainEntry next) {
    while (!chain.empty() && chain.back().digest != next.commit.previous) {
        if (next.commit.n_undone == 0) {
            return false;
        }
        chain.pop_back();
    }
    chain.push_back(std::move(next));
    return true;
}

std::deque<ChainEntry> CommitLog::load() const {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const uint64_t         from = floor();
        std::deque<ChainEntry> chain;
        if (auto first = read(from)) {
            chain.push_back(std::move(*first));
        } else if (from > 0) {
            continue;  // the floor has been raised meanwhile
        }
        if (chain.empty() || extend(chain)) {
            return chain;
        }
    }
    throw StoreError(
        "the chain of commits has a gap; check that no other run uses the same store and key"
    );
}

bool CommitLog::extend(std::deque<ChainEntry> & chain) const {
    while (auto next = read(chain.back().commit.index + 1)) {
        if (!append(chain, std::move(*next))) {
            return false;
        }
    }
    return true;
}

}  // namespace gt
