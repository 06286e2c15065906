// comm/sequencer/sequencer.h — writes commits: in the hub or, without a hub, in one of the hosts.
//
// Safety does not depend on there being only one sequencer. A commit's key is created only if it is
// absent: of several writers one wins, and the others read what it wrote. Each commit has the digest
// of the one before.
// Of several candidates the writer of the newest commit leads, until another one has seen no commit for some time
// and writes the next. Before the first commit all do.
// Read next: membership.h (when a round closes), retention.h (garbage collection).
#pragma once

#include "comm/sequencer/commit-log.h"
#include "comm/sequencer/membership.h"
#include "comm/sequencer/retention.h"

#include <functional>
#include <set>

namespace gt {

struct SequencerOptions {
    std::string       name    = "hub";  // a valid host name
    bool              elected = false;  // one of several candidates
    bool              direct  = false;  // hosts may serve their messages themselves: held-copy.h
    MembershipOptions membership;
    Millis            presence_poll{1000};  // how often presences are listed; see note()
    double            early = 0;  // looks for messages from this part of the pace on: reads cost
    Millis            takeover_after{20'000};  // without a commit for this long and twice the pace

    std::function<void(const SeenMessage &)> on_message;  // metrics, for the status page
    std::function<void(const std::string &)> on_refusal;  // a record that is not authentic, once
};

class Sequencer {
public:
    Sequencer(Store & store, const RunKeys & keys, const SequencerOptions & options);

    // Reads the store once, without waiting, and closes the round if it is time. Returns whether
    // there is a new commit. On StoreError call it again later.
    bool poll(Time now);

    // Called by a hub for every new key, so that presences are seen before the next listing.
    void note(const std::string & key, Time now);

    enum class State : uint8_t {
        loading,    // is to read the chain
        following,  // another sequencer leads
        leading,
        writing,  // the put of a commit may have failed: the same bytes are put again
    };
    State state() const { return state_; }
    bool  leads() const { return state_ == State::leading || state_ == State::writing; }
    const std::optional<Commit> & head() const { return membership_.head(); }
    std::map<std::string, Key32>  names() const { return membership_.names(); }  // and their keys

private:
    bool                       pass(Time now);
    void                       load(Time now);
    void                       restart();
    bool                       must_restore();
    bool                       adopt_restored();
    bool                       follow(Time now);
    bool                       catch_up(Time now);
    void                       lead_or_follow();
    bool                       look_for_settings();
    void                       look_for_presences(Time now);
    bool                       is_obsolete(const PresenceKey & presence) const;
    void                       take_presence(const std::string & key, Time now);
    void                       look_for_messages(Time now);
    std::optional<SeenMessage> find_message(const MessageId & id);
    void                       look_for_slices();
    bool                       close(Time now);
    bool                       write(Commit commit, Time now);
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

    State               state_        = State::loading;
    bool                has_settings_ = false;
    Time                moved_{};
    std::optional<Time> looked_;  // for presences or, following, for commits; none: look at once
    std::optional<uint64_t> restored_;   // hosts have put back commits up to this one
    std::set<std::string>   presences_;  // keys that were read
    std::set<std::string>   refused_;    // of the open round, to report each once
    Bytes                   pending_;    // if writing: the commit of open_index()
};

}  // namespace gt
