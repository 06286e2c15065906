// comm/hub-sequencer.h — the sequencer as the hub's hooks: a put is looked at when it arrives.
#pragma once

#include "comm/hub.h"
#include "comm/sequencer.h"

#include <atomic>

namespace gt {

class HubSequencer : public HubHooks {
public:
    HubSequencer(const RunKeys & keys, const SequencerOptions & options);

    void start(Store & store) override;
    void on_put(const std::string & key) override;
    void tick(std::chrono::steady_clock::time_point now) override;

    // From now on loss and speed of every message appear on the hub's status page.
    // REQUIRES: the hub ends before this does.
    void report_to(Hub & hub) { hub_ = &hub; }

private:
    RunKeys                    keys_;
    SequencerOptions           options_;
    std::unique_ptr<Sequencer> sequencer_;
    std::atomic<Hub *>         hub_{nullptr};
};

}  // namespace gt
