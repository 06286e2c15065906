// comm/sequencer/membership.cpp — see membership.h.
#include "comm/sequencer/membership.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace gt {

constexpr size_t   kKept      = 64;   // commits and states that messages are compared with
constexpr uint64_t kHistory   = 8;    // rounds that decide whether a member is awaited
constexpr uint64_t kMinRounds = 100;  // between checkpoints
constexpr uint64_t kTraffic   = 10;   // bytes of messages for each byte of a checkpoint, at least
constexpr uint64_t kStuck     = 8;    // intervals after which another order replaces one
constexpr int kFirstRound     = 60;  // first deadlines until a member is silent, at an unknown pace

void Membership::advance(const Commit & head, const Key32 & digest, Time now) {
    pace_.closed(head, !head_);
    if (head_ && !head.messages.empty()) {
        if (head_->step != kNone && head.step > listed_step_) {
            gap_ = std::max(gap_, head.step - listed_step_);
        }
        listed_step_  = head.step;
        listed_index_ = head.index;
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
    stuck_.clear();
    std::erase_if(hellos_, [&](const auto & hello) {  // the commit has them
        const CommitHost * host = head.find(hello.first);
        return host && host->incarnation >= hello.second.incarnation;
    });
    const auto is_unknown = [&](const auto & one) {
        return !head.find(one.first) && !hellos_.contains(one.first);
    };
    std::erase_if(leaves_, is_unknown);
    std::erase_if(seen_, is_unknown);
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
            pace_.message(seen.host, now - begun, seen.head);
        }
    }
}

// The phases of an exchange take different times: a member may send once in the longest of them.
bool Membership::is_silent(const std::string & host, Time now) const {
    const bool has_outputs =
        pace_.is_known(Phase::outputs) || (head_ && head_->phase == Phase::inputs);
    const Millis longest =
        std::max(deadline(Phase::inputs), has_outputs ? deadline(Phase::outputs) : Millis(0));
    const Millis limit =
        pace_.is_known(Phase::inputs) ? 4 * longest : kFirstRound * options_.first_deadline;
    const auto it = seen_.find(host);
    return it == seen_.end() || now - it->second > std::max(options_.gone_after, limit);
}

// A member that may still send a message for the open round.
bool Membership::is_live(const CommitHost & host, Time now) const {
    const auto hello = hellos_.find(host.name);
    const auto leave = leaves_.find(host.name);
    return host.member && !removed_.contains(host.name) &&
           (hello == hellos_.end() || hello->second.incarnation <= host.incarnation) &&
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

Millis Membership::deadline(Phase phase) const {
    return std::max(
        pace_.deadline(phase, options_.deadline_factor),
        pace_.is_known(phase) ? options_.min_deadline : options_.first_deadline
    );
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
                   return would_admit(hello.first, hello.second.incarnation, now);
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

Commit Membership::begin(Time now) const {
    Commit commit;
    for (const auto & [name, hello] : hellos_) {
        if (would_admit(name, hello.incarnation, now)) {
            commit.hosts.push_back(
                {.name = name, .key = hello.key, .incarnation = hello.incarnation, .member = true}
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
    commit.step            = head_->step;
    commit.complete_at     = head_->complete_at;
    commit.pace_ms         = static_cast<uint32_t>(pace_.pace(Phase::inputs).count());
    commit.outputs_pace_ms = static_cast<uint32_t>(pace_.pace(Phase::outputs).count());
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

// Steps grow from round to round as they have so far: a host that names a much later one, as if the run were
// over, is not believed, unless most members name it.
uint64_t Membership::max_step() const {
    const uint64_t n = open_index() - listed_index_;
    return gap_ == 0 || n > (kNone - listed_step_) / gap_ ? kNone : listed_step_ + n * gap_;
}

std::optional<Commit> Membership::close(Time now) const {
    if (!head_) {
        Commit commit = begin(now);
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
    const Verdict verdict = judge(*head_, arrived, states_, max_step());
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
