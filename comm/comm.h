// comm/comm.h — how a host meets others: the only table of kinds and URL schemes.
//
//   auto meeting = meet(read_hosts("hosts.txt"), "anna");             // hub, folder or bucket
//   auto run     = agree_settings(meeting->store(), meeting->keys(), "anna", ours, given);
//   auto peers   = make_peers(*meeting, {.host = "anna"});            // Peers and SharedRun
//   ...                                                               // train
//   peers.reset();
//   meeting->finish();                                                // the others may still fetch
//
// Alone: make_self_peers(host). Read next: peers-store.h (rounds), hub.h (the meeting point).
#pragma once

#include "comm/hosts.h"
#include "comm/local.h"
#include "comm/peers-self.h"
#include "comm/peers-store.h"
#include "comm/run-settings.h"

namespace gt {

struct MeetOptions {
    std::string hub_path    = "hub-store";  // of a hub inside this host
    int         status_port = -1;           // of that hub's page
    bool        take_over   = false;        // a person's word: this host orders rounds from now on
    bool        observe     = false;        // only reads: starts no hub, orders nothing
    uint64_t    up_limit    = 0;            // bytes per second
    std::string congestion  = "bbr";
    std::function<void(const std::string & line)> say;  // what was refused, for people
    MembershipOptions membership;  // if rounds are ordered here; the run's settings go before
};

// The place where hosts meet. If the hub or the sequencer is ours, it runs as long as this lives.
class Meeting {
public:
    virtual ~Meeting() = default;

    virtual Store &         store()      = 0;
    virtual const RunKeys & keys() const = 0;

    // In plain words, a line each: whether this machine reaches the place, how fast, and whether
    // clock and version agree. Takes about two seconds and a few MB; StoreError: it can't be reached.
    // `name`: of this machine.
    virtual std::string check(const std::string & name) = 0;

    // If others depend on us: waits until they have left the run, at most `patience`.
    virtual void finish(Millis patience = Millis(120'000)) = 0;
};

// By kind of `hosts`: our own hub, another's, file:///path, s3://bucket/prefix. Throws Error with the
// next move if the place can't be reached.
std::unique_ptr<Meeting>
meet(const Hosts & hosts, const std::string & name, const MeetOptions & options = {});

// REQUIRES: `meeting` lives longer.
std::unique_ptr<RunPeers> make_peers(Meeting & meeting, const StorePeersOptions & options);

}  // namespace gt
