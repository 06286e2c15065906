// comm/round-repair.cpp — what a host does while it waits for long: nothing of it costs a run that
// goes well anything.
//
// A listed message may be gone from the store although its digest is committed. Who misses it says so
// in a *lost* record; who holds it and waits puts it again. If every member says so, the sequencer
// revises the commit, and the message is absent for everybody.
#include "comm/round-client.h"
#include "comm/wire.h"

#include <algorithm>

namespace gt {

// The next commit does not come.
void RoundClient::while_waiting(Time now) {
    if (!waiting_since_) {
        waiting_since_ = now;
        looked_        = now;
    }
    if (now - looked_ < options_.lost_after / 2) {
        return;
    }
    looked_ = now;
    if (log_.floor() > pos_ + 1) {
        fault_ = Fault::expired;
        return;
    }
    if (!head_commit_ || !held_.contains(pos_)) {
        return;
    }
    // Do others miss a message of the round that we have applied?
    for (const CommitHost & host : head_commit_->hosts) {
        if (!host.member || host.name == options_.host) {
            continue;
        }
        const RecordHead about{Kind::lost, pos_, host.name, host.incarnation};
        const auto       value = store_.get(paths_.lost(pos_, head_commit_->revision, host.name));
        const auto       body  = value ? parse_record(keys_, about, *value) : std::nullopt;
        WireReader       in(body ? std::span<const uint8_t>(*body) : std::span<const uint8_t>());
        while (in.ok() && !in.at_end()) {
            const std::string     name    = in.text(kMaxHostNameSize);
            const auto            held    = held_[pos_].find(name);
            const CommitMessage * message = head_commit_->message_of(name);
            if (held != held_[pos_].end() && message) {
                store_.put(paths_.message(pos_, name, message->incarnation), held->second);
            }
        }
    }
}

// The commit is there, but a message that it lists is not.
void RoundClient::while_stuck(ChainEntry & entry, Time now) {
    if (!stuck_since_) {
        stuck_since_ = now;
        looked_      = now;
    }
    if (now - looked_ < options_.lost_after / 4) {
        return;
    }
    looked_ = now;
    if (log_.floor() > entry.commit.index) {
        fault_ = Fault::expired;
        return;
    }
    while (look_ahead({})) {  // a later commit may show that another revision of this one holds
    }
    if (fault_ != Fault::none) {
        return;
    }
    const Commit & commit = ahead_.front().commit;
    if (ahead_.size() == 1 && commit.revision < kMaxRevision) {
        if (auto revised = log_.read(commit.index, commit.revision + 1);
            revised && revised->commit.previous == commit.previous) {
            ahead_.front() = std::move(*revised);
            fetched_.clear();
            stuck_since_.reset();
            has_voted_ = false;
            return;
        }
    }
    if (now - *stuck_since_ < options_.lost_after) {
        return;
    }
    const Commit & newest = ahead_.back().commit;
    if (newest.complete_at != kNone && newest.complete_at > commit.index + 1 && ahead_.size() > 2) {
        const auto listing = log_.read(newest.complete_at);
        if (listing && listing->commit.complete &&
            listing->commit.complete->index >= commit.index) {
            fault_ = Fault::expired;  // the others have gone on: a later checkpoint will do
            return;
        }
    }
    if (has_voted_) {
        return;
    }
    WireWriter out;
    for (const CommitMessage & message : commit.messages) {
        if (!fetched_.contains(message.host)) {
            out.text(message.host);
        }
    }
    // Members vote; the life is the one that the commit knows.
    const CommitHost * me = commit.find(options_.host);
    if (me && me->member && me->incarnation == incarnation_) {
        const RecordHead head{Kind::lost, commit.index, options_.host, incarnation_};
        store_.put(
            paths_.lost(commit.index, commit.revision, options_.host),
            make_record(keys_, head, out.bytes())
        );
        has_voted_ = true;
    }
}

}  // namespace gt
