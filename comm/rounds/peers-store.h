// comm/rounds/peers-store.h — Peers over any Store: RoundClient plus waiting and threads.
//
// The caller's thread follows the chain. Two threads upload, one messages and one checkpoint slices,
// so that a large slice never delays a small message. collect waits for the commit only. With `ahead`
// another thread follows the chain from publish to the end of the round, and collect waits for it: so all
// of an exchange travels while the caller computes.
// Read next: round-client.h (the protocol itself), butterfly.h (exchanges in shares), protocol.md.
#pragma once

#include "comm/rounds/butterfly.h"
#include "comm/rounds/uploader.h"
#include "ggml-train/peers.h"

#include <atomic>
#include <exception>
#include <thread>

namespace gt {

struct StorePeersOptions {
    std::string host;
    int         n_fetch = 4;
    Millis      poll{2'000};             // one long poll for a commit
    Millis      lost_after{20'000};      // see fetcher.h
    Millis      give_up{12 * 3600'000};  // throw Error after this time without a commit
    Millis      slice_timeout{60'000};   // then a slice is unreadable: join at another checkpoint
    Millis      drain{60'000};           // at the end, for unfinished uploads

    bool observe = false;  // follows the rounds, never publishes

    bool ahead = false;  // rounds are collected in the background; one message in flight at most

    std::optional<ShardCodec> shards;  // set: every message is exchanged through a butterfly

    std::function<void(const std::string & line)> log;   // long waits
    std::function<bool()>                         stop;  // true: the user wants to stop waiting
    std::function<void()> joining;  // called several times a second while join waits
};

class StorePeers : public Peers {
public:
    // REQUIRES: `store` outlives this.
    StorePeers(Store & store, const RunKeys & keys, const StorePeersOptions & options);
    ~StorePeers() override;  // finishes uploads, then leaves the run

    Joined                   join(std::span<const uint8_t> mark, bool fresh) override;
    std::optional<Bytes>     slice(int i) override;
    Bytes                    mark() override { return place_.empty() ? client_.mark() : place_; }
    void                     publish(uint64_t step, uint64_t n_samples, Bytes message) override;
    std::optional<Collected> missed(bool admission) override;
    Collected                collect(uint64_t step) override;
    void                     pause() override;
    void                     applied(Applied applied) override;

private:
    bool                is_behind(bool admission);
    void                go_ahead();
    Collected           collect_here();
    Collected           collect_next();
    OpenedRound         next();
    Collected           to_collected(OpenedRound opened);
    SliceOrder          slice_order(const std::vector<std::string> & writers) const;
    void                put_slice(uint64_t step, Applied::Slice slice);
    RoundClient::Upload upload();
    void                restore();
    void                keep_records();
    void                leave();
    void                check_stop(const std::string & for_what) const;
    void                wait_or_give_up(Time since, const std::string & for_what, Millis pause);

    Store &                      store_;
    RunKeys                      keys_;
    StorePeersOptions            options_;
    std::map<uint64_t, uint64_t> orders_;           // index of a checkpoint by its step
    std::atomic<uint64_t>        newest_order_{0};  // older checkpoints are not written any more
    CheckpointList               joined_;           // the checkpoint that join() named
    std::map<std::string, Bytes> records_;          // settings and model, in case the store is lost
    Uploader                     messages_, slices_;
    RoundClient                  client_;
    std::optional<Butterfly>     butterfly_;
    uint64_t                     n_logged_ = 0;

    // Our place before the round that is being collected, which may take several commits; else empty.
    Bytes place_;

    // Collects in the background: has client_ and butterfly_ until it is joined.
    std::thread              ahead_;
    std::optional<Collected> found_;
    Time                     found_at_{};
    std::exception_ptr       failed_;
    std::atomic<bool>        is_leaving_{false};
};

}  // namespace gt
