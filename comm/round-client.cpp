// comm/round-client.cpp — publishing, and following the chain one commit at a time.
#include "comm/round-client.h"

#include <algorithm>
#include <mutex>

namespace gt {

constexpr size_t kHeldRounds = 3;  // whose messages we could put again

RoundClient::RoundClient(
    Store & store, const RunKeys & keys, const RoundClientOptions & options, Upload upload
)
    : store_(store), keys_(keys), options_(options), upload_(std::move(upload)), paths_(keys.run),
      log_(store_, keys_) {
    GT_CHECK(valid_host_name(options_.host), "a host needs a name");
    GT_CHECK(keys_.can_read, "a host needs the run's secret, not the hub's form of it");
}

const Commit * RoundClient::newest_commit() const {
    return !ahead_.empty() ? &ahead_.back().commit : head_commit_ ? &*head_commit_ : nullptr;
}

void RoundClient::publish(
    uint64_t step, uint8_t phase, uint64_t weight, std::span<const uint8_t> body
) {
    GT_CHECK(generation_ > 0, "a host joins before it publishes");
    GT_CHECK(weight >= 1, "a message has at least one sample behind it");
    const uint64_t  index = next_index();
    const MessageId id{index, options_.host, incarnation_};
    MessageHead     head = head_of_next_;
    head.step            = step;
    head.phase           = phase;
    head.weight          = weight;
    head.base            = head_;
    head.n_body_bytes    = static_cast<uint32_t>(body.size());
    head.up_bytes        = up_bytes_;
    head.down_bytes      = down_bytes_;
    Bytes value          = make_message(keys_, id, head, body);
    up_bytes_ += value.size();
    in_flight_.push_back({index, step, incarnation_, digest256(value), generation_, phase});
    held_[index][options_.host] = value;
    upload_(paths_.message(index, options_.host, incarnation_), std::move(value), index);
}

std::vector<uint64_t> RoundClient::steps_in_flight() const {
    std::vector<uint64_t> steps;
    for (const InFlight & sent : in_flight_) {
        if (sent.phase != 2) {  // a share of a dense exchange belongs to the round before
            steps.push_back(sent.step);
        }
    }
    return steps;
}

void RoundClient::report(const StepReport & report) {
    head_of_next_.state_index  = pos_;
    head_of_next_.state_digest = report.state_digest;
    head_of_next_.loss         = static_cast<float>(report.loss);
    head_of_next_.tokens_s     = static_cast<float>(report.tokens_s);
    head_of_next_.waited_s     = static_cast<float>(report.waited_s);
}

uint64_t RoundClient::n_behind(Time now) {
    while (look_ahead({})) {
    }
    const uint64_t sent   = std::max(pos_, in_flight_.empty() ? 0 : in_flight_.back().index);
    const Commit * newest = newest_commit();
    if (ahead_.size() <= 2 && !has_hello_) {
        say_hello(newest);
    }
    if (!settled_.empty() || fault_ != Fault::none) {
        return 1;
    }
    if (pos_ + ahead_.size() > sent) {
        return pos_ + ahead_.size() - sent;
    }
    const CommitHost * me = newest ? newest->find(options_.host) : nullptr;
    const bool is_in = options_.observe || (me && me->member && me->incarnation == incarnation_);
    if (!is_in) {
        while_waiting(now);
    }
    return is_in ? 0 : 1;
}

// Reads the next commit of the chain, if it is there. False: not yet, or it doesn't fit.
bool RoundClient::look_ahead(Millis wait) {
    if (fault_ != Fault::none) {
        return false;
    }
    auto next = log_.read(pos_ + ahead_.size() + 1, 0, wait);
    return next && append(std::move(*next));
}

bool RoundClient::append(ChainEntry entry) {
    const Key32 & before = ahead_.empty() ? head_ : ahead_.back().digest;
    if (entry.commit.epoch < epoch_) {
        return false;  // of a writer that has lost its turn; where keys are written once there is none
    }
    if (entry.commit.previous != before) {
        if (ahead_.empty()) {
            fault_ = Fault::forked;  // what we applied last does not hold
            return false;
        }
        auto right = log_.find(ahead_.back().commit.index, entry.commit.previous);
        if (!right || right->commit.previous != ahead_.back().commit.previous) {
            fault_ = Fault::forked;
            return false;
        }
        ahead_.back() = std::move(*right);  // another revision of a round we have not applied yet
        fetched_.clear();
        has_voted_ = false;
    }
    epoch_ = entry.commit.epoch;
    ahead_.push_back(std::move(entry));
    return true;
}

OpenedRound RoundClient::faulty(Fault fault) {
    OpenedRound out;
    fault_    = fault;
    out.fault = fault;
    // the step of the round that could not be returned; what is in flight stays so until the next join
    out.commit.step =
        in_flight_.empty() ? (head_commit_ ? head_commit_->step : kNone) : in_flight_.front().step;
    return out;
}

std::optional<OpenedRound> RoundClient::try_next(Millis wait, Time now) {
    if (!settled_.empty()) {
        OpenedRound out = std::move(settled_.front());
        settled_.pop_front();
        return out;
    }
    if (ahead_.empty() && fault_ == Fault::none && !look_ahead(wait) && fault_ == Fault::none) {
        if (!has_hello_) {
            say_hello(newest_commit());
        }
        while_waiting(now);
    }
    if (fault_ != Fault::none) {
        return faulty(fault_);
    }
    if (ahead_.empty()) {
        return std::nullopt;
    }
    waiting_since_.reset();
    ChainEntry & entry = ahead_.front();
    if (!fetch(entry)) {
        while_stuck(entry, now);
        return std::nullopt;
    }
    if (has_voted_) {  // it can be had after all
        store_.remove(paths_.lost(entry.commit.index, entry.commit.revision, options_.host));
    }
    OpenedRound out;
    out.commit = entry.commit;
    open(entry, out);
    settle(entry.commit, out);
    judge_membership(entry.commit, out);
    pos_         = entry.commit.index;
    head_        = entry.digest;
    head_commit_ = entry.commit;
    held_[pos_]  = std::move(fetched_);
    while (held_.size() > kHeldRounds) {
        held_.erase(held_.begin());
    }
    ahead_.pop_front();
    fetched_.clear();
    stuck_since_.reset();
    has_voted_ = false;
    return out;
}

// Gets what the commit lists, each with the digest it must have. False: something is missing yet.
bool RoundClient::fetch(ChainEntry & entry) {
    std::vector<const CommitMessage *> missing;
    const auto                         held = held_.find(entry.commit.index);
    for (const CommitMessage & message : entry.commit.messages) {
        if (fetched_.contains(message.host)) {
            continue;
        }
        if (held != held_.end() && held->second.contains(message.host) &&
            digest256(held->second[message.host]) == message.digest) {
            fetched_[message.host] = held->second[message.host];
        } else {
            missing.push_back(&message);
        }
    }
    std::mutex mutex;
    const auto get = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const CommitMessage & message = *missing[static_cast<size_t>(i)];
            auto                  value =
                store_.get(paths_.message(entry.commit.index, message.host, message.incarnation));
            if (value && value->size() == message.size && digest256(*value) == message.digest) {
                const std::lock_guard lock(mutex);
                down_bytes_ += value->size();
                fetched_[message.host] = std::move(*value);
            }
        }
    };
    const auto n = static_cast<int64_t>(missing.size());
    if (options_.n_fetch > 1 && n > 1) {
        Workers(static_cast<int>(std::min<int64_t>(options_.n_fetch, n))).split(n, get);
    } else {
        get(0, n);
    }
    return fetched_.size() == entry.commit.messages.size();
}

// The digests pin the bytes, and opening is a function of the bytes and the run's key: whether a
// message is genuine is decided alike by every host, without a word.
void RoundClient::open(const ChainEntry & entry, OpenedRound & out) {
    const Commit & commit = entry.commit;
    for (const CommitMessage & message : commit.messages) {
        MessageHead head;
        auto        body = open_message(
                   keys_, {commit.index, message.host, message.incarnation}, fetched_[message.host], &head
               );
        if (body && head.weight == message.weight && head.step == commit.step &&
            head.phase == commit.phase) {
            out.messages.push_back({message.host, message.weight, std::move(*body)});
        }
    }
}

// What became of our own message of this round.
void RoundClient::settle(const Commit & commit, OpenedRound & out) {
    if (in_flight_.empty() || in_flight_.front().index != commit.index) {
        return;
    }
    const InFlight sent = in_flight_.front();
    in_flight_.pop_front();
    out.mine                      = sent.step;
    const CommitMessage * listed  = commit.message_of(options_.host);
    const bool            is_ours = listed && listed->incarnation == sent.incarnation &&
                         (!sent.digest || *sent.digest == listed->digest);
    const bool is_open =
        std::any_of(out.messages.begin(), out.messages.end(), [&](const Message & message) {
            return message.host == options_.host;
        });
    // Shares of a dense exchange are done again by others: there is nothing to take back.
    out.has_mine = sent.phase == 2 || (is_ours && (is_open || out.is_settled_only));
    if (sent.generation == generation_ &&
        std::find(commit.diverged.begin(), commit.diverged.end(), options_.host) !=
            commit.diverged.end()) {
        out.fault = fault_ = Fault::diverged;
    }
}

void RoundClient::judge_membership(const Commit & commit, OpenedRound & out) {
    const CommitHost * me = commit.find(options_.host);
    if (!me || !has_hello_) {
        return;
    }
    if (me->incarnation > incarnation_) {
        throw Error(
            "another machine takes part as '" + options_.host +
            "'; give each its own name with --name, or stop the other one"
        );
    }
    if (me->incarnation < incarnation_) {
        return;  // not yet taken in
    }
    if (!is_checked_) {
        // Taken in: no message of an earlier life is listed from now on. Did one go out after our
        // own state was saved? Then what it carried is still in our residual, too.
        is_checked_       = true;
        out.drop_residual = own_last_ && me->last_listed != kNone && me->last_listed > *own_last_;
    }
    if (!me->member && ahead_.size() <= 1) {
        has_hello_ = false;  // we were silent for too long: come in again
    }
}

}  // namespace gt
