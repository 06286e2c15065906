// comm/rounds/fetcher.h — fetches the messages that a commit lists, and repairs lost ones.
//
// A store may lose a listed message although its digest is committed. A host that has applied the round
// and waits for the next one puts its copy again. If nobody has one, the hosts are stuck and say so: the
// sequencer undoes the round. None of this costs anything while rounds close normally.
#pragma once

#include "comm/rounds/chain.h"
#include "comm/rounds/outbox.h"

#include <map>

namespace gt {

class Fetcher {
public:
    struct Options {
        std::string host;
        Millis      lost_after{};  // a listed message is lost after this time
        int         n_threads = 1;
    };
    Fetcher(Store & store, const RunKeys & keys, const Options & options);

    // Our own message: not fetched, and put again if the store loses it.
    void keep(const MessageId & id, const Bytes & message) {
        held_[id.index][id.host] = {id.incarnation, message};
    }

    // Fetches what the commit lists and is not there yet. True: everything is there.
    bool fetch(const Commit & commit);

    // The messages that open, and their heads. REQUIRES: fetch returned true.
    std::vector<Message> open(const Commit & commit, std::map<std::string, MessageHead> & heads);

    // The round is applied: keeps its messages for a while.
    void finish(uint64_t index);

    void reset();                                    // after joining again
    void found_commit() { waiting_since_.reset(); }  // the next commit is there

    enum class Trouble {
        none,
        lost,     // the store lacks commits that we hold
        expired,  // the rounds behind ours are removed, or the others have moved on: join again
        forked,   // they are replaced by others: join again
        stuck,    // nobody has the listed messages
    };

    // Called while the next commit does not come: puts again what the store has lost.
    [[nodiscard]] Trouble while_waiting(const Chain & chain, Time now);

    // Called while fetch returns false for the first commit ahead: puts again what the store has lost,
    // and reads on, because a later commit may undo this one.
    [[nodiscard]] Trouble while_stuck(Chain & chain, Time now);

    // Puts all messages that we hold.
    void put_back();

    uint64_t n_bytes() const { return n_bytes_; }  // fetched so far

private:
    struct Held {
        uint64_t incarnation = 0;
        Bytes    value;
    };
    using Messages = std::map<std::string, Held>;  // by host

    bool has_newer_checkpoint(const Chain & chain) const;
    void put_missing(const Chain & chain, uint64_t floor);
    void put(uint64_t index, const Messages::value_type & held);

    Store &                      store_;
    const RunKeys &              keys_;
    RunPaths                     paths_;
    Options                      options_;
    Messages                     fetched_;       // of the first commit ahead
    uint64_t                     fetching_ = 0;  // its index
    std::map<uint64_t, Messages> held_;          // of the last rounds, by index
    std::optional<Time>          waiting_since_, stuck_since_;
    Time                         looked_{};
    uint64_t                     n_bytes_ = 0;
};

}  // namespace gt
