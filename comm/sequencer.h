// comm/sequencer.h — writes commits: the hub's own work, or that of one host where there is no hub.
//
// Safety does not depend on there being one sequencer. A commit's key is created only if it is
// absent, so that of several writers one wins and the others take what it wrote; each commit names
// the digest of the one before. Where the store has no working atomic create, one writer is
// appointed (the first host) and stays until a person appoints another.
// Epochs say whose turn it is: who creates epoch record n leads in it, until somebody waits in
// vain for a commit and creates n + 1. Along the chain epochs never fall.
// Read next: membership.h (when a round closes), retention.h (what is removed).
#pragma once

#include "comm/commit-log.h"
#include "comm/membership.h"
#include "comm/retention.h"

#include <functional>
#include <set>

namespace gt {

struct SequencerOptions {
    std::string name    = "hub";  // a valid host name
    bool        elected = false;  // others may want to write, too: epoch records decide
    bool        atomic  = true;   // the store has a working atomic create
    bool        direct  = false;  // hosts may serve their messages themselves: held.h
    bool take_over = false;  // a person's word: writes from now on, in a new epoch; not elected
    MembershipOptions membership;
    Millis            presence_poll{1000};     // how often newcomers are looked for; see note()
    Millis            takeover_after{20'000};  // without a commit; and twice the pace
    Millis            lost_after{20'000};      // a round stands still so long: is a message lost?

    std::function<void(const SeenMessage &)> on_message;  // metrics, for the status page
    std::function<void(const Commit &)>      on_commit;
    std::function<void(const std::string &)> on_refusal;  // what is not genuine, once
};

class Sequencer {
public:
    Sequencer(Store & store, const RunKeys & keys, const SequencerOptions & options);

    // Looks at the store once, without waiting, and closes the round if it is time. Returns whether
    // there is a new commit. StoreError: try again later; nothing is lost by it.
    bool poll(Time now);

    // For a hub, which knows what is put: a key that may be of interest is looked at now, and not
    // only when presences are listed again.
    void note(const std::string & key, Time now);

    bool                          leads() const { return leads_; }
    const std::optional<Commit> & head() const { return membership_.head(); }

private:
    bool                       follow(Time now);
    bool                       catch_up(Time now);
    bool                       claim(Time now);
    bool                       look_for_settings();
    void                       look_for_presences(Time now);
    void                       take_presence(const std::string & key, Time now);
    void                       look_for_messages(Time now);
    std::optional<SeenMessage> find_message(const MessageId & id);
    void                       look_for_parts();
    bool                       close(Time now);
    bool                       write(Commit commit, Time now);
    bool                       revise(Time now);
    void                       refuse(const std::string & what);
    void                       advance(const ChainEntry & entry, Time now);
    void                       take(const ChainEntry & entry, Time now);

    Store &          store_;
    RunKeys          keys_;
    SequencerOptions options_;
    RunPaths         paths_;
    CommitLog        log_;
    Membership       membership_;
    Retention        retention_;

    bool                  loaded_ = false, leads_ = false, listed_ = false, has_settings_ = false;
    uint64_t              epoch_ = 0, seen_epoch_ = 0;
    Time                  moved_{}, looked_{}, looked_lost_{};
    std::set<std::string> presences_;  // keys that were taken in
    std::set<std::string> refused_;    // of the open round, to be told once
    std::optional<Bytes>  pending_;    // a commit whose put failed: written again as it was
    uint64_t              pending_index_    = 0;
    uint32_t              pending_revision_ = 0;
};

}  // namespace gt
