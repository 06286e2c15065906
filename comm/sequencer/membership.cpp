// comm/sequencer/membership.cpp — see membership.h.
#include "comm/sequencer/membership.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace gt {

constexpr size_t   kKept        = 64;  // commits and states that messages are compared with
constexpr size_t   kKeptMedians = 8;
constexpr uint64_t kHistory     = 8;    // rounds that decide whether a member is awaited
constexpr uint64_t kMinRounds   = 100;  // between checkpoints
constexpr uint64_t kTraffic     = 10;   // bytes of messages for each byte of a checkpoint, at least
constexpr uint64_t kStuck       = 8;    // intervals after which another order replaces one
constexpr int kFirstRound = 60;  // first deadlines until a member is silent, at an unknown pace

static Millis median_of(std::vector<Millis> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? Millis{0} : values[(values.size() - 1) / 2];
}

void Membership::advance(const Commit & head, const Key32 & digest, Time now) {
    // before the first inputs nobody fetches outputs: they take less time than all later ones
    const bool is_short = head.phase == Phase::inputs && medians_[1].empty();
    const bool is_timed = head_ && !is_short && !head.messages.empty() && !durations_.empty();
    for (const Phase phase : {Phase::inputs, Phase::outputs}) {
        auto &         medians = medians_[phase == Phase::outputs];
        const uint32_t pace_ms = phase == Phase::outputs ? head.outputs_pace_ms : head.pace_ms;
        if (is_timed && (head.phase == Phase::outputs) == (phase == Phase::outputs)) {
            medians.push_back(median_of(durations_));
            if (medians.size() > kKeptMedians) {
                medians.pop_front();
            }
        } else if (medians.size() <= 1 && pace_ms > 0) {
            medians = {Millis(pace_ms)};  // a new sequencer continues at the pace of the one before
        }
    }
    head_              = head;
    head_digest_       = digest;
    heads_[head.index] = digest;
    if (heads_.size() > kKept) {
        heads_.erase(heads_.begin());
    }
    opened_before_ = opened_;
    opened_        = now;
    arrived_.clear();
    durations_.clear();
    stuck_.clear();
    if (head.phase != Phase::outputs && !head.messages.empty()) {
        std::vector<uint64_t> weights;
        for (const CommitMessage & message : head.messages) {
            weights.push_back(message.weight);
        }
        const auto middle = weights.begin() + static_cast<ptrdiff_t>(weights.size() / 2);
        std::nth_element(weights.begin(), middle, weights.end());
        whole_ = std::max(whole_, *middle);
    }
    for (const CommitHost & host : head.hosts) {
        seen_.try_emplace(host.name, now);
        if (head.message_of(host.name)) {
            seen_[host.name] = now;
        }
    }
    if (head.state_digest != 0) {
        states_[head.state_index] = head.state_digest;
        if (states_.size() > kKept) {
            states_.erase(states_.begin());
        }
    }
    if (head.complete) {
        checkpoint_bytes_ = head.complete->n_bytes();
        n_broken_         = 0;
        if (order_ && head.complete->index >= order_->index()) {
            order_.reset();
        }
    }
    bytes_ += head.n_bytes();
    awaits_all_ = false;
    if (head.n_undone > 0) {
        order_.reset();
        has_no_checkpoint_ = true;
    }
    if (!head.writers.empty()) {
        has_no_checkpoint_ = false;
        n_broken_ += order_ ? 1 : 0;
        order_.emplace(head, digest);
        last_order_ = head.index;
        bytes_      = 0;
    }
}

bool Membership::pin(const std::string & host, const Key32 & key) {
    if (const CommitHost * known = head_ ? head_->find(host) : nullptr) {
        return known->key == key;
    }
    return keys_.size() < 2 * kMaxHosts && keys_.try_emplace(host, key).first->second == key;
}

void Membership::hello(const std::string & host, uint64_t incarnation, Time now) {
    const CommitHost * known = head_ ? head_->find(host) : nullptr;
    const bool         fits  = known || hellos_.contains(host) || hellos_.size() < kMaxHosts;
    if (fits && is_next_incarnation(incarnation, known ? known->incarnation : 0) &&
        incarnation > hellos_[host]) {
        hellos_[host] = incarnation;
        seen_[host]   = now;
    }
}

void Membership::leave(const std::string & host, uint64_t incarnation) {
    if (hellos_.contains(host) || (head_ && head_->find(host))) {
        leaves_[host] = std::max(leaves_[host], incarnation);
    }
}

void Membership::remove(const std::string & host) {
    if (removed_.size() < kMaxHosts) {
        removed_.insert(host);
    }
}

void Membership::ask(uint64_t index) {
    const uint64_t known = std::min(index, head_ ? head_->index : 0);
    asked_               = asked_ == kNone ? known : std::max(asked_, known);
}

void Membership::restored() {
    order_.reset();
    awaits_all_        = true;
    has_no_checkpoint_ = true;
}

void Membership::stuck(
    const std::string & host, uint64_t newest, uint64_t place, const Key32 & head, Time now
) {
    if (head_ && newest == head_->index && place < newest && head_->find(host)) {
        stuck_since_ = stuck_.empty() ? now : stuck_since_;
        stuck_[host] = {place, head};
    }
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

// The time that a whole batch would have taken: a slow host computes part of it. Else hosts that all
// compute less, under a load that passes, would shorten the deadline and hold each other there.
Millis Membership::whole_time(Time::duration time, const MessageHead & head) const {
    const auto ms = std::chrono::duration_cast<std::chrono::duration<double, std::milli>>(time);
    if (head.phase == Phase::outputs || head.weight >= whole_) {
        return Millis(static_cast<int64_t>(ms.count()));
    }
    const double parts = static_cast<double>(whole_) / static_cast<double>(head.weight);
    return Millis(static_cast<int64_t>(std::min(ms.count() * parts, 1e12)));
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
            durations_.push_back(whole_time(now - begun, seen.head));
        }
    }
}

// The phases of an exchange take different times: a member may send once in the longest of them.
bool Membership::is_silent(const std::string & host, Time now) const {
    const bool   has_outputs = !medians_[1].empty() || (head_ && head_->phase == Phase::inputs);
    const Millis longest =
        std::max(deadline(Phase::inputs), has_outputs ? deadline(Phase::outputs) : Millis(0));
    const Millis limit = medians_[0].empty() ? kFirstRound * options_.first_deadline : 4 * longest;
    const auto   it    = seen_.find(host);
    return it == seen_.end() || now - it->second > std::max(options_.gone_after, limit);
}

// A member that may still send a message for the open round.
bool Membership::is_live(const CommitHost & host, Time now) const {
    const auto hello = hellos_.find(host.name);
    const auto leave = leaves_.find(host.name);
    return host.member && !removed_.contains(host.name) &&
           (hello == hellos_.end() || hello->second <= host.incarnation) &&
           (leave == leaves_.end() || leave->second < host.incarnation) &&
           !is_silent(host.name, now);
}

bool Membership::is_awaited(const CommitHost & host, Time now) const {
    const auto n      = std::min(kHistory, open_index() - host.since - 1);  // rounds as a member
    const bool is_new = host.since > 0 && n < kHistory &&
                        (host.last_listed == kNone || host.last_listed <= host.since);
    return is_live(host, now) &&
           (is_new || 2u * static_cast<unsigned>(std::popcount(host.history)) >= n);
}

// Time that messages take; 0: unknown.
Millis Membership::pace(Phase phase) const {
    const auto & medians = medians_[phase == Phase::outputs];
    return median_of({medians.begin(), medians.end()});
}

Millis Membership::deadline(Phase phase) const {
    const bool   is_known = !medians_[phase == Phase::outputs].empty();
    const Millis first    = durations_.empty() ? Millis(0) : durations_.front();
    const auto   time     = static_cast<double>((is_known ? pace(phase) : first).count());
    const Millis scaled(static_cast<int64_t>(std::min(time * options_.deadline_factor, 1e12)));
    return std::max(scaled, is_known ? options_.min_deadline : options_.first_deadline);
}

// As most of the messages that have arrived.
Phase Membership::open_phase() const {
    const auto n = static_cast<size_t>(std::count_if(
        arrived_.begin(), arrived_.end(),
        [](const auto & arrived) { return arrived.second.head.phase == Phase::outputs; }
    ));
    return 2 * n > arrived_.size() ? Phase::outputs : Phase::inputs;
}

// Its sender has applied another commit than the one that is valid, and will join again.
bool Membership::is_foreign(const MessageHead & head) const {
    const auto base = heads_.find(head.base_index);
    return base != heads_.end() && base->second != head.base;
}

// One predicate for "a commit is due" and "the commit admits": a hello that only the first accepts
// would be answered by empty commits without end.
bool Membership::would_admit(const std::string & name, uint64_t incarnation) const {
    const CommitHost * known = head_ ? head_->find(name) : nullptr;
    const auto         leave = leaves_.find(name);
    const bool         is_new =
        known ? incarnation > known->incarnation : !head_ || head_->hosts.size() < kMaxHosts;
    return is_new && !removed_.contains(name) && !(known && known->removed) &&
           (leave == leaves_.end() || leave->second < incarnation);
}

bool Membership::is_time(Time now) const {
    if (options_.n_steps != 0 && head_->step != kNone && head_->step + 1 >= options_.n_steps &&
        order_ && order_->is_complete() && !is_broken(*head_)) {
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
        // Nobody is left to send: list what has arrived, or tell and admit hosts with an empty round.
        return !arrived_.empty() ||
               std::any_of(
                   head_->hosts.begin(), head_->hosts.end(),
                   [&](const auto & host) { return host.member && removed_.contains(host.name); }
               ) ||
               std::any_of(hellos_.begin(), hellos_.end(), [&](const auto & hello) {
                   return would_admit(hello.first, hello.second);
               });
    }
    if (awaits_all_ && n_live_here < n_live) {
        return false;
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
           (arrived_.size() >= quorum && now - begun_ >= deadline(open_phase()) &&
            now - opened_ >= options_.min_deadline);
}

Key32 Membership::key_of(const std::string & host) const {
    const auto it = keys_.find(host);
    return it == keys_.end() ? Key32{} : it->second;
}

Commit Membership::begin() const {
    Commit commit;
    for (const auto & [name, incarnation] : hellos_) {
        if (would_admit(name, incarnation) && commit.hosts.size() < kMaxHosts) {
            commit.hosts.push_back(
                {.name = name, .key = key_of(name), .incarnation = incarnation, .member = true}
            );
            commit.writers.push_back(name);  // the initial state is the first shared checkpoint
        }
    }
    return commit;
}

// A commit without messages.
Commit Membership::next() const {
    Commit commit;
    commit.index           = open_index();
    commit.previous        = head_digest_;
    commit.epoch           = head_->epoch;
    commit.step            = head_->step;
    commit.complete_at     = head_->complete_at;
    commit.pace_ms         = static_cast<uint32_t>(pace(Phase::inputs).count());
    commit.outputs_pace_ms = static_cast<uint32_t>(pace(Phase::outputs).count());
    return commit;
}

// No host can apply the newest commit, and all had time to say so.
bool Membership::are_stuck(Time now) const {
    return !stuck_.empty() && arrived_.empty() && now - stuck_since_ >= options_.gone_after &&
           std::all_of(head_->hosts.begin(), head_->hosts.end(), [&](const CommitHost & host) {
               return !is_live(host, now) || stuck_.contains(host.name);
           });
}

// Follows the newest commit whose state a host has; those behind it are undone.
Commit Membership::undo(Time now) const {
    std::pair<uint64_t, Key32> place;
    for (const auto & [host, stands] : stuck_) {
        place = std::max(place, stands);
    }
    Commit commit   = next();
    commit.previous = place.second;
    commit.n_undone = head_->index - place.first;
    if (commit.complete_at > place.first) {
        commit.complete_at = kNone;
    }
    update_hosts(commit, now);
    for (CommitHost & host : commit.hosts) {
        if (host.last_listed != kNone) {
            host.last_listed = std::min(host.last_listed, place.first);
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
    if (are_stuck(now)) {
        return undo(now);
    }
    if (!is_time(now)) {
        return std::nullopt;
    }
    // messages
    auto arrived = arrived_;
    std::erase_if(arrived, [&](const auto & one) {
        return is_foreign(one.second.head) || removed_.contains(one.first);
    });
    const Verdict verdict = judge(*head_, arrived, states_);
    Commit        commit  = next();
    commit.step           = verdict.usable.empty() ? head_->step : verdict.step;
    commit.phase          = verdict.usable.empty() ? Phase::single : verdict.phase;
    commit.state_index    = verdict.state_index;
    commit.state_digest   = verdict.state_digest;
    commit.diverged       = verdict.diverged;
    for (const std::string & name : verdict.usable) {
        const SeenMessage & seen   = arrived_.at(name);
        const uint64_t      weight = std::min(seen.head.weight, verdict.max_weight);
        commit.messages.push_back(
            {name, seen.incarnation, weight, seen.size, seen.digest, seen.where}
        );
        commit.n_shard_bytes += seen.head.n_shard_bytes;
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
        if (would_admit(name, incarnation) && !commit.find(name) &&
            commit.hosts.size() < kMaxHosts) {
            commit.hosts.push_back({.name = name, .key = key_of(name)});
        }
    }
    // members, and new incarnations of known hosts
    for (CommitHost & host : commit.hosts) {
        const bool listed = commit.message_of(host.name) != nullptr;
        host.member       = is_live(host, now);
        host.removed |= removed_.contains(host.name);
        host.history = static_cast<uint8_t>(host.history << 1 | (listed ? 1 : 0));
        if (listed && commit.phase != Phase::outputs) {  // these carry means, no residual
            host.last_listed = commit.index;
        }
        const auto hello = hellos_.find(host.name);
        if (hello != hellos_.end() && would_admit(host.name, hello->second)) {
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
    order_->set_ready(slice, written, state_digest);
}

// The checkpoint that is being written can't be completed by `commit` or a later one.
bool Membership::is_broken(const Commit & commit) const {
    const auto known   = states_.find(order_->index());
    const bool is_news = commit.state_digest != 0 && commit.state_index == order_->index();
    return order_->is_broken(
        commit, known != states_.end() ? known->second
                : is_news              ? commit.state_digest
                                       : 0
    );
}

// One checkpoint is written at a time: on a slow line it takes many rounds. A broken one is ordered
// again, less and less often.
bool Membership::is_due(const Commit & commit) const {
    const uint64_t n = commit.index - last_order_;
    if (options_.n_steps != 0 && commit.step + 1 >= options_.n_steps) {
        return true;  // the last one
    }
    if (has_no_checkpoint_) {
        return true;
    }
    if (const bool broken = order_ && is_broken(commit);
        broken || (order_ && !order_->is_complete())) {
        const bool is_stuck =
            options_.checkpoint_every != 0
                ? n >= kStuck * options_.checkpoint_every
                : bytes_ > kStuck * kTraffic * checkpoint_bytes_ && n >= kMinRounds;
        return is_stuck || (broken && n >> std::min<uint64_t>(n_broken_, 32) > 0);
    }
    if (asked_ != kNone && asked_ >= last_order_ && bytes_ >= checkpoint_bytes_) {
        return true;
    }
    return options_.checkpoint_every != 0
               ? n >= options_.checkpoint_every
               : n >= kMinRounds && bytes_ >= kTraffic * checkpoint_bytes_;
}

void Membership::order_checkpoint(Commit & commit) const {
    if (commit.messages.empty() || commit.phase == Phase::inputs || !is_due(commit)) {
        return;
    }
    std::vector<std::string> slow;  // did not write their slices of the last one
    for (const CommitMessage & message : commit.messages) {  // their senders are surely alive
        const CommitHost * host = commit.find(message.host);
        if (host->member && host->incarnation == message.incarnation &&
            commit.writers.size() < kMaxSlices) {
            const bool is_slow = order_ && order_->is_waiting_for(message.host);
            (is_slow ? slow : commit.writers).push_back(message.host);
        }
    }
    if (commit.writers.empty()) {
        commit.writers = slow;
    }
}

void Membership::list_checkpoint(Commit & commit) const {
    if (order_ && order_->is_complete() && !is_broken(commit)) {
        commit.complete_at = commit.index;
        commit.complete    = order_->list();
    }
}

}  // namespace gt
