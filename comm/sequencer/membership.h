// comm/sequencer/membership.h — decides which hosts are members and when a round closes.
//
// A pure state machine without store, threads or clock: events and the time are arguments, a commit
// is the result. Equal events give equal commits. Driven by sequencer.h.
//
// A round closes when all *awaited* members have sent, or at the deadline with a quorum. A member is
// awaited if it was listed in at least half of the last eight rounds, or of those since it joined, and
// until it is listed, in its first eight rounds: it may still replay some, hardly faster than they close.
// A host that is four times slower is not awaited, but its message is listed if it arrives in time.
// The deadline follows the pace of rounds (round-pace.h), from the opening of the round that messages were begun
// in: this one or, with overlap, the one before.
#pragma once

#include "comm/sequencer/checkpoint-order.h"
#include "comm/sequencer/round-pace.h"
#include "comm/sequencer/verdict.h"
#include "comm/store/store.h"
#include "ggml-train/base/round-deadline.h"

#include <deque>
#include <set>

namespace gt {

struct MembershipOptions {
    size_t   min_hosts = 1;    // the run begins when this many hosts have joined
    double   quorum    = 0.5;  // fraction of the live members that must have sent at the deadline
    double   deadline_factor = kDeadlineFactor;
    Millis   first_deadline{60'000};  // before the first durations are known
    Millis   min_deadline{kMinDeadlineMs};
    Millis   gone_after{60'000};    // a member silent for this long (and 4 deadlines) is removed
    uint64_t checkpoint_every = 0;  // rounds between shared checkpoints; 0: by their size
    uint64_t n_steps          = 0;  // the run ends there, with a last checkpoint; 0: unknown
};

class Membership {
public:
    explicit Membership(const MembershipOptions & options) : options_(options) {}

    void set_options(const MembershipOptions & options) { options_ = options; }

    // Takes `head` as the newest commit: the next round is open since `now`.
    void advance(const Commit & head, const Key32 & digest, Time now);

    // A host's name belongs to the key of its first presence. False: to another key.
    [[nodiscard]] bool           pin(const std::string & host, const Key32 & key);
    std::map<std::string, Key32> names() const;  // and their keys

    void hello(const std::string & host, uint64_t incarnation, Time now);
    void leave(const std::string & host, uint64_t incarnation);
    void remove(const std::string & host);  // for good

    // A host that joins needs a checkpoint of `index` or later: replaying older rounds is slower.
    void ask(uint64_t index);

    // Hosts have put back what the store had lost. The open round closes when all members have sent:
    // one may have applied it already. Slices and checkpoints are lost: a new one is due.
    void restored();

    // `host` is stuck behind the commit `place`, whose digest is `head`: the store has lost what commits
    // up to `newest` list.
    void
    stuck(const std::string & host, uint64_t newest, uint64_t place, const Key32 & head, Time now);

    // The members' messages of the open round that have not arrived.
    std::vector<MessageId> missing() const;
    void                   message(const SeenMessage & seen, Time now);

    // The checkpoint that is being written, if any.
    const std::optional<CheckpointOrder> & order() const { return order_; }
    void slice_ready(size_t slice, const CheckpointSlice & written, uint64_t state_digest);

    // The commit that closes the open round (or begins the run), if it is time; its writer
    // is not set. The state changes only in advance().
    [[nodiscard]] std::optional<Commit> close(Time now) const;

    Millis                        deadline(Phase phase) const;
    const std::optional<Commit> & head() const { return head_; }
    const Key32 &                 head_digest() const { return head_digest_; }
    uint64_t                      open_index() const { return head_ ? head_->index + 1 : 0; }
    bool                          is_silent(const std::string & host, Time now) const;
    uint64_t                      last_order() const { return last_order_; }  // of a checkpoint
    Time                          opened() const { return opened_; }

private:
    Commit   begin(Time now) const;
    Commit   next() const;
    bool     are_stuck(Time now) const;
    Commit   undo(Time now) const;
    void     make_room(const std::string & host);
    bool     would_admit(const std::string & host, uint64_t incarnation, Time now) const;
    bool     is_forgettable(const CommitHost & host, Time now) const;
    uint64_t max_step() const;
    Phase    open_phase() const;
    bool     is_foreign(const MessageHead & head) const;
    bool     is_live(const CommitHost & host, Time now) const;
    bool     is_awaited(const CommitHost & host, Time now) const;
    bool     is_time(Time now) const;
    void     update_hosts(Commit & commit, Time now) const;
    bool     is_broken(const Commit & commit) const;
    bool     is_due(const Commit & commit) const;
    void     order_checkpoint(Commit & commit) const;
    void     list_checkpoint(Commit & commit) const;

    // The newest incarnation with a hello, 0: none yet, and the key of the name's first presence.
    struct Hello {
        uint64_t incarnation = 0;
        Key32    key{};
    };

    MembershipOptions     options_;
    std::optional<Commit> head_;
    Key32                 head_digest_{};
    Time                  opened_{}, opened_before_{};  // of the open round and the one before
    Time                  begun_{};  // when work on the first message that arrived was begun

    uint64_t listed_step_ = 0, listed_index_ = 0;  // of the last round with messages
    uint64_t gap_ = 0;                             // largest between two of them; 0: unknown

    std::map<std::string, SeenMessage> arrived_;  // of the open round
    RoundPace                          pace_;
    std::map<std::string, Hello>       hellos_;  // newer than in the commit
    std::map<std::string, uint64_t>    leaves_;  // newest incarnation with a leave
    std::set<std::string>              removed_;
    std::map<std::string, Time>        seen_;    // last sign of a host
    std::map<uint64_t, uint64_t>       states_;  // digest of the shared state by index
    std::map<uint64_t, Key32>          heads_;   // digest of the commit by index
    std::optional<CheckpointOrder>     order_;
    uint64_t                           last_order_ = 0;
    uint64_t                           bytes_      = 0;  // of messages since the last order
    uint64_t checkpoint_bytes_                     = 0;  // of the last complete one; 0: unknown
    uint64_t n_broken_                             = 0;  // orders in a row that were not completed
    uint64_t asked_ = kNone;  // a host needs a checkpoint of this index or later
    std::map<std::string, std::pair<uint64_t, Key32>> stuck_;  // where hosts stand
    Time                                              stuck_since_{};
    bool awaits_all_ = false, has_no_checkpoint_ = false;  // see restored()
};

}  // namespace gt
