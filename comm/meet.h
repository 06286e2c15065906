// comm/meet.h — connects a host with the others of its run: at a hub, in a folder or in a bucket.
//
//   auto meeting = meet(read_hosts("hosts.txt"), "anna");             // hub, folder or bucket
//   auto run     = agree_settings(meeting->store(), meeting->keys(), "anna", ours, given);
//   auto peers   = make_peers(*meeting, {.host = "anna"});
//   ...                                                               // train
//   peers.reset();
//   meeting->finish();                                                // others may still fetch
//
// Alone: make_self_peers(host). Stores are listed in store-kinds.cpp.
// Read next: peers-store.h (rounds), hub.h (the meeting point).
#pragma once

#include "comm/hub/hub.h"
#include "comm/local/run-ranks.h"
#include "comm/rounds/peers-self.h"
#include "comm/rounds/peers-store.h"
#include "comm/run/host-key.h"
#include "comm/run/hosts.h"
#include "comm/sequencer/run-settings.h"

namespace gt {

struct MeetOptions {
    std::string                  hub_path = "hub-store";  // folder of a hub in this process
    bool                         observe  = false;  // only reads: starts no hub and no sequencer
    bool                         only_records = false;  // a hub-key is enough
    std::shared_ptr<UploadLimit> up_limit;  // of all that leaves this machine; null: none
    std::string                  congestion = "bbr";
    std::function<void(const std::string & line)> log;   // refused records, a hub that is gone
    std::function<bool()>                         stop;  // true: the user wants to stop waiting
    MembershipOptions membership;  // for a sequencer here; the run's settings override them
};

// The place where hosts meet. Owns the hub and the sequencer, if they run in this process.
class Meeting {
public:
    virtual ~Meeting() = default;

    virtual Store &         store()      = 0;
    virtual const RunKeys & keys() const = 0;

    // Measures the link, and compares clock and version: the result as text, one sentence per line.
    // Takes about two seconds and a few MB. Throws StoreError if the place can't be reached.
    // `name`: of this host.
    virtual std::string check(const std::string & name) = 0;

    // Of the hub in this process; nothing: it runs elsewhere, or there is none.
    virtual std::optional<HubTraffic> hub_traffic() const = 0;

    // If hub or sequencer run here: waits until all hosts have left the run, at most `timeout`.
    virtual void finish(Millis timeout = Millis(120'000)) = 0;

    std::unique_ptr<NameLock> name_lock;  // null: takes no part
};

// Starts the hub if it is ours, else connects to it, or opens the store. Throws Error with what to
// do if that fails.
std::unique_ptr<Meeting>
meet(const Hosts & hosts, const std::string & name, const MeetOptions & options = {});

// REQUIRES: `meeting` outlives the result.
std::unique_ptr<Peers> make_peers(Meeting & meeting, const StorePeersOptions & options);

}  // namespace gt
