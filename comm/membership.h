// comm/membership.h — who counts in a round, and when it closes. A pure state machine.
//
// It knows no store, thread or clock: what was seen and the time are arguments, a commit is the
// result. Same events, same commits. sequencer.h feeds it.
//
// A round closes when all *awaited* members have sent, or at the deadline with a quorum. Awaited is
// who was listed in at least half of the last eight rounds, or of those since it came: a host that
// is four times slower is not waited for, and still counts whenever its message is there in time.
// The deadline is `patience` times the median of the times that messages of the last rounds took, each
// from the opening of the round it was begun in: this one or, with overlap, the one before.
#pragma once

#include "comm/verdict.h"

#include <chrono>
#include <deque>

namespace gt {

using Time   = std::chrono::steady_clock::time_point;
using Millis = std::chrono::milliseconds;

struct MembershipOptions {
    size_t   min_hosts = 1;    // the run begins with so many
    double   quorum    = 0.5;  // share of the live members that a round needs at its deadline
    double   patience  = 1.5;
    Millis   first_deadline{60'000};  // while nothing is known yet
    Millis   min_deadline{500};
    Millis   max_deadline{600'000};
    Millis   gone_after{60'000};      // silent for so long (and four deadlines): not a member
    uint64_t checkpoint_every = 100;  // rounds between shared checkpoints; 0: none after the first
    uint64_t n_steps          = 0;    // the run ends there, with a last checkpoint; 0: not known
};

// A shared checkpoint that is being written.
struct CheckpointOrder {
    uint64_t                    index = 0;
    uint64_t                    step  = 0;
    Key32                       head{};
    std::vector<CheckpointPart> parts;              // n_pieces 0: not there yet
    std::map<int, uint64_t>     digests;            // of the state, by part that is there
    bool                        is_broken = false;  // a part was refused
};

class Membership {
public:
    explicit Membership(const MembershipOptions & options) : options_(options) {}

    void set_options(const MembershipOptions & options) { options_ = options; }

    // Takes a commit as the newest; its round is over and the next one is open since `now`.
    void advance(const Commit & head, const Key32 & digest, Time now);

    void hello(const std::string & host, uint64_t incarnation, Time now);
    void leave(const std::string & host, uint64_t incarnation);

    // Whose message of the open round has not been seen: all of them count if they come in time.
    std::vector<MessageId> missing() const;
    void                   message(const SeenMessage & seen, Time now);

    // The checkpoint that is being written, if any; and what became of one of its parts.
    const std::optional<CheckpointOrder> & order() const { return order_; }
    void part_ready(int part, const CheckpointPart & written, uint64_t state_digest);

    // The commit that closes the open round (or begins the run), if it is time; without epoch and
    // writer. Nothing changes until it is given to advance.
    [[nodiscard]] std::optional<Commit> close(Time now) const;

    Millis                        deadline() const;
    const std::optional<Commit> & head() const { return head_; }
    const Key32 &                 head_digest() const { return head_digest_; }
    uint64_t                      open_index() const { return head_ ? head_->index + 1 : 0; }
    bool                          is_silent(const std::string & host, Time now) const;
    size_t                        n_arrived() const { return arrived_.size(); }
    Time                          opened() const { return opened_; }

private:
    Commit begin() const;
    bool   is_live(const CommitHost & host, Time now) const;
    bool   is_awaited(const CommitHost & host, Time now) const;
    bool   is_time(Time now) const;
    void   update_hosts(Commit & commit, Time now) const;
    void   order_checkpoint(Commit & commit) const;
    bool   is_order_broken(const Commit & commit) const;
    void   list_checkpoint(Commit & commit) const;

    MembershipOptions     options_;
    std::optional<Commit> head_;
    Key32                 head_digest_{};
    Time                  opened_{}, opened_before_{};  // the open round, and the one before
    Time                  begun_{};  // the work on the first message that arrived

    std::map<std::string, SeenMessage> arrived_;    // of the open round
    std::vector<Millis>                durations_;  // of the open round, in order of arrival
    std::deque<Millis>                 medians_;    // of the last rounds
    std::map<std::string, uint64_t>    hellos_;     // newest life that said hello
    std::map<std::string, uint64_t>    leaves_;     // newest life that said goodbye
    std::map<std::string, Time>        heard_;
    std::map<uint64_t, uint64_t>       states_;  // digest of the shared state by index
    std::optional<CheckpointOrder>     order_;
    uint64_t                           last_order_ = 0;
};

}  // namespace gt
