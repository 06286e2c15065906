// comm/sequencer/membership.cpp — see membership.h.
#include "comm/sequencer/membership.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace gt {

constexpr size_t   kKeptStates  = 64;
constexpr size_t   kKeptMedians = 8;
constexpr uint64_t kHistory     = 8;  // rounds that decide whether a member is awaited

static Millis median_of(std::vector<Millis> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? Millis{0} : values[(values.size() - 1) / 2];
}

void Membership::advance(const Commit & head, const Key32 & digest, Time now) {
    if (head_ && !head.messages.empty() && !durations_.empty()) {
        medians_.push_back(median_of(durations_));
        if (medians_.size() > kKeptMedians) {
            medians_.pop_front();
        }
    } else if (medians_.size() <= 1 && head.pace_ms > 0) {
        medians_ = {
            Millis(head.pace_ms)};  // a new sequencer continues at the pace of the one before
    }
    head_          = head;
    head_digest_   = digest;
    opened_before_ = opened_;
    opened_        = now;
    arrived_.clear();
    durations_.clear();
    for (const CommitHost & host : head.hosts) {
        seen_.try_emplace(host.name, now);
        if (head.message_of(host.name)) {
            seen_[host.name] = now;
        }
    }
    if (head.state_digest != 0) {
        states_[head.state_index] = head.state_digest;
        if (states_.size() > kKeptStates) {
            states_.erase(states_.begin());
        }
    }
    if (order_ && head.complete && head.complete->index >= order_->index()) {
        order_.reset();
    }
    if (!head.writers.empty()) {
        order_.emplace(head, digest);
        last_order_ = head.index;
    }
}

void Membership::hello(const std::string & host, uint64_t incarnation, Time now) {
    uint64_t & newest = hellos_[host];
    if (incarnation > newest) {
        newest      = incarnation;
        seen_[host] = now;
    }
}

void Membership::leave(const std::string & host, uint64_t incarnation) {
    uint64_t & newest = leaves_[host];
    newest            = std::max(newest, incarnation);
}

std::vector<MessageId> Membership::missing() const {
    std::vector<MessageId> ids;
    if (head_) {
        for (const CommitHost & host : head_->hosts) {
            if (host.member && !arrived_.contains(host.name)) {
                ids.push_back({open_index(), host.name, host.incarnation});
            }
        }
    }
    return ids;
}

void Membership::message(const SeenMessage & seen, Time now) {
    const CommitHost * host = head_ ? head_->find(seen.host) : nullptr;
    if (!host || !host->member || host->incarnation != seen.incarnation) {
        return;  // not a member: it must announce itself first
    }
    seen_[seen.host] = now;
    if (arrived_.try_emplace(seen.host, seen).second) {
        // with overlap, work on it was begun when the round before this one opened
        const bool overlaps =
            seen.head.phase == Phase::single && seen.head.state_index + 2 == open_index();
        const Time begun = overlaps ? opened_before_ : opened_;
        begun_           = arrived_.size() == 1 ? begun : std::min(begun_, begun);
        // a message that arrived before the round opened carries no timing information
        if (overlaps || now > opened_) {
            durations_.push_back(std::chrono::duration_cast<Millis>(now - begun));
        }
    }
}

bool Membership::is_silent(const std::string & host, Time now) const {
    const auto it = seen_.find(host);
    return it == seen_.end() || now - it->second > std::max(options_.gone_after, 4 * deadline());
}

// A member that may still send a message for the open round.
bool Membership::is_live(const CommitHost & host, Time now) const {
    const auto hello = hellos_.find(host.name);
    const auto leave = leaves_.find(host.name);
    return host.member && (hello == hellos_.end() || hello->second <= host.incarnation) &&
           (leave == leaves_.end() || leave->second < host.incarnation) &&
           !is_silent(host.name, now);
}

bool Membership::is_awaited(const CommitHost & host, Time now) const {
    const auto n = std::min(kHistory, open_index() - host.since - 1);  // rounds as a member
    return is_live(host, now) && 2u * static_cast<unsigned>(std::popcount(host.history)) >= n;
}

Millis Membership::deadline() const {
    if (medians_.empty()) {
        return options_.first_deadline;
    }
    const Millis median = median_of({medians_.begin(), medians_.end()});
    const double scaled =
        std::min(static_cast<double>(median.count()) * options_.deadline_factor, 1e12);
    return std::clamp(
        Millis(static_cast<int64_t>(scaled)), options_.min_deadline, options_.max_deadline
    );
}

bool Membership::is_time(Time now) const {
    if (options_.n_steps != 0 && head_->step != kNone && head_->step + 1 >= options_.n_steps &&
        order_ && order_->is_complete() && !order_->is_broken(*head_)) {
        return true;  // the last checkpoint is complete, and no message will come to list it with
    }
    // count the members
    size_t n_live = 0, n_awaited = 0, n_awaited_here = 0, n_live_here = 0;
    for (const CommitHost & host : head_->hosts) {
        const bool here = arrived_.contains(host.name);
        if (is_live(host, now)) {
            ++n_live;
            n_live_here += here ? 1 : 0;
        }
        if (is_awaited(host, now)) {
            ++n_awaited;
            n_awaited_here += here ? 1 : 0;
        }
    }
    if (n_live == 0) {
        // Nobody is left to send: list what has arrived, or admit new hosts with an empty round.
        const bool has_hello = std::any_of(hellos_.begin(), hellos_.end(), [&](const auto & hello) {
            const CommitHost * known = head_->find(hello.first);
            return !known || hello.second > known->incarnation;
        });
        return !arrived_.empty() || has_hello;
    }
    // all awaited members, or a quorum at the deadline
    if (n_awaited == 0) {
        n_awaited      = n_live;
        n_awaited_here = n_live_here;
    }
    const auto quorum =
        static_cast<size_t>(std::max(1.0, std::ceil(options_.quorum * static_cast<double>(n_live)))
        );
    return n_awaited_here == n_awaited ||
           (arrived_.size() >= quorum && now - begun_ >= deadline() &&
            now - opened_ >= options_.min_deadline);
}

Commit Membership::begin() const {
    Commit commit;
    for (const auto & [name, incarnation] : hellos_) {
        const auto leave = leaves_.find(name);
        if (leave == leaves_.end() || leave->second < incarnation) {
            commit.hosts.push_back({.name = name, .incarnation = incarnation, .member = true});
            commit.writers.push_back(name);  // the initial state is the first shared checkpoint
        }
    }
    return commit;
}

std::optional<Commit> Membership::close(Time now) const {
    if (!head_) {
        Commit commit = begin();
        if (commit.hosts.empty() || commit.hosts.size() < options_.min_hosts) {
            return std::nullopt;
        }
        return commit;
    }
    if (!is_time(now)) {
        return std::nullopt;
    }
    // messages
    const Verdict verdict = judge(*head_, arrived_, states_);
    Commit        commit;
    commit.index        = open_index();
    commit.previous     = head_digest_;
    commit.epoch        = head_->epoch;
    commit.step         = verdict.usable.empty() ? head_->step : verdict.step;
    commit.phase        = verdict.usable.empty() ? Phase::single : verdict.phase;
    commit.state_index  = verdict.state_index;
    commit.state_digest = verdict.state_digest;
    commit.diverged     = verdict.diverged;
    commit.complete_at  = head_->complete_at;
    commit.pace_ms      = static_cast<uint32_t>(
        medians_.empty() ? 0 : median_of({medians_.begin(), medians_.end()}).count()
    );
    for (const std::string & name : verdict.usable) {
        const SeenMessage & seen = arrived_.at(name);
        commit.messages.push_back(
            {name, seen.incarnation, seen.head.weight, seen.size, seen.digest, seen.where}
        );
    }
    // members and checkpoints
    update_hosts(commit, now);
    order_checkpoint(commit);
    list_checkpoint(commit);
    return commit;
}

void Membership::update_hosts(Commit & commit, Time now) const {
    commit.hosts = head_->hosts;
    std::vector<std::string> members;
    for (const auto & [name, incarnation] : hellos_) {  // new hosts
        const CommitHost * known = commit.find(name);
        const auto         leave = leaves_.find(name);
        if ((known && known->incarnation >= incarnation) ||
            (leave != leaves_.end() && leave->second >= incarnation)) {
            continue;
        }
        if (!known && commit.hosts.size() < kMaxHosts) {
            commit.hosts.push_back({.name = name});
        }
    }
    // members, and new incarnations of known hosts
    for (CommitHost & host : commit.hosts) {
        const bool listed = commit.message_of(host.name) != nullptr;
        host.member       = is_live(host, now);
        host.history      = static_cast<uint8_t>(host.history << 1 | (listed ? 1 : 0));
        if (listed) {
            host.last_listed = commit.index;
        }
        const auto hello = hellos_.find(host.name);
        const auto leave = leaves_.find(host.name);
        if (hello != hellos_.end() && hello->second > host.incarnation &&
            (leave == leaves_.end() || leave->second < hello->second)) {
            host.incarnation = hello->second;
            host.member      = true;
            host.since       = commit.index;
            host.history     = 0;
        }
        if (host.member) {
            members.push_back(host.name);
        }
    }
    if (!members.empty()) {
        commit.validator = members[commit.index % members.size()];
    }
}

void Membership::slice_ready(size_t slice, const CheckpointSlice & written, uint64_t state_digest) {
    GT_CHECK(order_, "no checkpoint is being written");
    const auto majority = states_.find(order_->index());
    order_->set_ready(
        slice, written, state_digest, majority == states_.end() ? 0 : majority->second
    );
}

void Membership::order_checkpoint(Commit & commit) const {
    const bool is_last = options_.n_steps != 0 && commit.step + 1 >= options_.n_steps;
    const bool is_due =
        options_.checkpoint_every != 0 && commit.index >= last_order_ + options_.checkpoint_every;
    const bool is_broken = order_ && order_->is_broken(commit);
    if (commit.messages.empty() || commit.phase == Phase::inputs ||
        !(is_last || is_due || is_broken)) {
        return;
    }
    for (const CommitMessage & message : commit.messages) {  // their senders are surely alive
        const CommitHost * host = commit.find(message.host);
        if (host->member && host->incarnation == message.incarnation &&
            commit.writers.size() < kMaxSlices) {
            commit.writers.push_back(message.host);
        }
    }
}

void Membership::list_checkpoint(Commit & commit) const {
    if (order_ && order_->is_complete() && !order_->is_broken(commit)) {
        commit.complete_at = commit.index;
        commit.complete    = order_->list();
    }
}

}  // namespace gt
