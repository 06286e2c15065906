// comm/rounds/fetcher.cpp — see fetcher.h.
#include "comm/rounds/fetcher.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

namespace gt {

constexpr size_t kHeldRounds = 3;  // whose messages are kept, to put them again

Fetcher::Fetcher(Store & store, const RunKeys & keys, const Options & options)
    : store_(store), keys_(keys), paths_(keys.run), options_(options) {}

bool Fetcher::fetch(const Commit & commit) {
    if (std::exchange(fetching_, commit.index) != commit.index) {
        fetched_.clear();
        stuck_since_.reset();
    }
    // take what we hold already
    std::vector<const CommitMessage *> missing;
    const auto                         held = held_.find(commit.index);
    for (const CommitMessage & message : commit.messages) {
        if (fetched_.contains(message.host)) {
            continue;
        }
        if (held != held_.end() && held->second.contains(message.host) &&
            digest256(held->second[message.host].value) == message.digest) {
            fetched_[message.host] = held->second[message.host];
        } else {
            missing.push_back(&message);
        }
    }
    // get the others, several at a time
    std::mutex mutex;
    const auto get = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const CommitMessage & message = *missing[static_cast<size_t>(i)];
            auto                  value =
                store_.get(paths_.message({commit.index, message.host, message.incarnation}));
            if (value && value->size() == message.size && digest256(*value) == message.digest) {
                const std::lock_guard lock(mutex);
                n_bytes_ += value->size();
                fetched_[message.host] = {message.incarnation, std::move(*value)};
            }
        }
    };
    const auto n = static_cast<int64_t>(missing.size());
    if (options_.n_threads > 1 && n > 1) {
        Workers(static_cast<int>(std::min<int64_t>(options_.n_threads, n))).split(n, get);
    } else {
        get(0, n);
    }
    return fetched_.size() == commit.messages.size();
}

// The commit has the digests of the bytes and the keys of hosts: the result depends on both only, and
// all hosts reject the same messages, without communication.
std::vector<Message>
Fetcher::open(const Commit & commit, std::map<std::string, MessageHead> & heads) {
    std::vector<Message> messages;
    for (const CommitMessage & message : commit.messages) {
        const MessageId id{commit.index, message.host, message.incarnation};
        SignedHead      about;
        auto            body = open_message(keys_, id, fetched_[message.host].value, &about);
        const auto &    head = about.head;
        if (body && about.signer == commit.find(message.host)->key &&
            message.weight <= head.weight && head.step == commit.step &&
            head.phase == commit.phase) {
            messages.push_back({message.host, message.weight, std::move(*body)});
            heads[message.host] = head;
        }
    }
    return messages;
}

void Fetcher::finish(uint64_t index) {
    held_[index] = std::move(fetched_);
    held_.erase(held_.begin(), held_.upper_bound(index - std::min<uint64_t>(index, kHeldRounds)));
    fetched_.clear();
}

void Fetcher::reset() {
    fetched_.clear();
    waiting_since_.reset();
    stuck_since_.reset();
}

void Fetcher::put(uint64_t index, const Messages::value_type & held) {
    store_.put(paths_.message({index, held.first, held.second.incarnation}), held.second.value);
}

void Fetcher::put_back() {
    for (const auto & [index, messages] : held_) {
        for (const auto & held : messages) {
            put(index, held);
        }
    }
}

// The store may have lost messages after it acknowledged them, or after they were listed. Those that
// hosts serve themselves were never in it.
void Fetcher::put_missing(const Chain & chain, uint64_t floor) {
    for (auto round = held_.lower_bound(floor); round != held_.end(); ++round) {
        const auto & [index, messages]     = *round;
        const Commit *              commit = chain.find(index);
        const auto                  keys   = store_.list(paths_.messages(index));
        const std::set<std::string> there(keys.begin(), keys.end());
        for (const auto & held : messages) {
            const CommitMessage * listed = commit ? commit->message_of(held.first) : nullptr;
            const bool            is_due = listed ? listed->where.empty() : index > chain.newest();
            if (is_due &&
                !there.contains(paths_.message({index, held.first, held.second.incarnation}))) {
                put(index, held);
            }
        }
    }
}

Fetcher::Trouble Fetcher::while_waiting(const Chain & chain, Time now) {
    // look when a round takes longer than usual: listing keys costs money in a bucket
    if (!waiting_since_) {
        waiting_since_ = now;
        looked_        = now;
    }
    const Commit * newest = chain.newest_commit();
    const Millis   usual(newest ? newest->pace_ms : 0);
    if (now - looked_ < std::max(options_.lost_after / 2, usual)) {
        return Trouble::none;
    }
    looked_ = now;
    // are the rounds behind ours removed, lost or replaced?
    const uint64_t floor = chain.log().floor();
    if (floor > chain.index() + 1) {
        return Trouble::expired;
    }
    if (chain.is_lost()) {
        return Trouble::lost;
    }
    if (chain.is_replaced()) {
        return Trouble::forked;
    }
    put_missing(chain, floor);
    return Trouble::none;
}

Fetcher::Trouble Fetcher::while_stuck(Chain & chain, Time now) {
    // look four times in lost_after
    if (!stuck_since_) {
        stuck_since_ = now;
        looked_      = now;
    }
    if (now - looked_ < options_.lost_after / 4) {
        return Trouble::none;
    }
    looked_ = now;
    // is the round removed, lost or undone?
    const uint64_t floor = chain.log().floor();
    if (floor > fetching_) {
        return Trouble::expired;
    }
    if (chain.is_lost()) {
        return Trouble::lost;
    }
    put_missing(chain, floor);
    for (auto read = Chain::Read::appended; read != Chain::Read::none; read = chain.read({})) {
        if (read == Chain::Read::forked) {
            return Trouble::forked;
        }
    }
    if (now - *stuck_since_ < options_.lost_after ||
        chain.ahead().front().commit.index != fetching_) {
        return Trouble::none;
    }
    // have the others moved on? Then load their next checkpoint
    return has_newer_checkpoint(chain) ? Trouble::expired : Trouble::stuck;
}

bool Fetcher::has_newer_checkpoint(const Chain & chain) const {
    const uint64_t index  = chain.ahead().front().commit.index;
    const Commit & newest = chain.ahead().back().commit;
    if (newest.complete_at == kNone || newest.complete_at <= index + 1 ||
        chain.ahead().size() <= 2) {
        return false;
    }
    const auto listing = chain.log().read(newest.complete_at);
    return listing && listing->commit.complete && listing->commit.complete->index >= index;
}

}  // namespace gt
