// comm/hub/hub-sequencer.h — the sequencer as the hub's hooks.
#pragma once

#include "comm/hub/hub.h"
#include "comm/sequencer/sequencer.h"

#include <atomic>
#include <mutex>

namespace gt {

// After a start: which members have not asked for the commit behind the newest one. A folder that was restored
// from an older copy lacks commits that hosts have read, and may have all messages of their rounds: closed a
// second time, they would divide the run. Such hosts ask for later commits, and put back what is missing.
class RollCall {
public:
    void begin(Store & store, const RunPaths & paths, const Commit & newest, Time now);

    // A line for the log, or nothing. Thread-safe.
    std::string on_get(const std::string & host, const std::string & key);

    // Hosts have put back commits.
    void end();

    // Whether rounds must not be closed yet.
    bool is_open(Time now);

private:
    std::mutex                      mutex_;
    Store *                         store_ = nullptr;
    RunPaths                        paths_{0};
    uint64_t                        next_ = 0;  // index of the commit that they should ask for
    std::map<std::string, uint64_t> awaited_;   // incarnations of members
    Time                            give_up_{};
    bool                            is_told_ = false;
};

class HubSequencer : public HubHooks {
public:
    HubSequencer(const RunKeys & keys, const SequencerOptions & options);

    void                 start(Store & store) override;
    void                 on_put(const std::string & key) override;
    void                 on_get(const std::string & host, const std::string & key) override;
    std::optional<Key32> key_of(const std::string & host) override;
    void                 tick(std::chrono::steady_clock::time_point now) override;

    // Shows the metrics of every message on the hub's status page.
    // REQUIRES: this outlives the hub.
    void report_to(Hub & hub) { hub_ = &hub; }

private:
    void tell(const std::string & text);
    void know(std::map<std::string, Key32> names);

    RunKeys                    keys_;
    SequencerOptions           options_;
    RollCall                   roll_call_;
    bool                       has_polled_ = false;
    std::unique_ptr<Sequencer> sequencer_;
    std::atomic<Hub *>         hub_{nullptr};

    std::mutex                   names_mutex_;
    std::map<std::string, Key32> names_;  // keys of their machines, as the sequencer knows them
};

}  // namespace gt
