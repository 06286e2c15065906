// comm/peers-store.h — Peers and SharedRun over any Store: RoundClient plus waiting and threads.
//
// The caller's thread follows the chain; two threads upload, one messages and one checkpoint parts,
// so that a large part never stands before a small message. collect waits for the commit only.
// Read next: round-client.h (the protocol itself), butterfly.h (dense exchanges), protocol.md.
#pragma once

#include "comm/butterfly.h"
#include "comm/uploader.h"
#include "ggml-train/exchange.h"

namespace gt {

struct StorePeersOptions {
    std::string host;
    int         n_fetch = 4;
    Millis      poll{10'000};             // one long poll for a commit
    Millis      lost_after{20'000};       // see round-repair.cpp
    Millis      patience{12 * 3600'000};  // without a commit: give up with an Error
    Millis      drain{60'000};            // at the end, for what is still being sent

    bool observe = false;  // follows the rounds, takes no part: never publish

    std::optional<DenseCodec> dense;  // set: every message is exchanged through a butterfly

    std::function<void(const std::string & line)> say;  // rare, for people: waiting, joined, ...
};

class StorePeers : public RunPeers {
public:
    // REQUIRES: `store` lives longer.
    StorePeers(Store & store, const RunKeys & keys, const StorePeersOptions & options);
    ~StorePeers() override;  // leaves the run; what is on its way is sent first

    const std::string & host() const override { return options_.host; }
    void                publish(uint64_t round, uint64_t weight, Bytes message) override;
    Round               collect(uint64_t round) override;

    Joined   join(std::span<const uint8_t> mark, bool fresh) override;
    uint64_t n_behind() override;
    Bytes    mark() override { return client_.mark(); }
    void     report(const StepReport & report) override { client_.report(report); }
    void     put_part(uint64_t round, int part, Bytes bytes) override;

private:
    OpenedRound next();
    Round       to_round(OpenedRound opened);
    void        wait_or_give_up(Time since, const std::string & for_what, Millis pause);

    Store &                      store_;
    RunKeys                      keys_;
    StorePeersOptions            options_;
    std::map<uint64_t, uint64_t> orders_;  // index of a checkpoint by its step
    std::vector<uint64_t>        empty_;   // rounds that were published without a message
    Uploader                     messages_, parts_;
    RoundClient                  client_;
    std::optional<Butterfly>     butterfly_;
    uint64_t                     n_said_ = 0;
};

}  // namespace gt
