// comm/hub/hub-sequencer.h — the sequencer as the hub's hooks.
#pragma once

#include "comm/hub/hub.h"
#include "comm/sequencer/sequencer.h"

#include <atomic>

namespace gt {

class HubSequencer : public HubHooks {
public:
    HubSequencer(const RunKeys & keys, const SequencerOptions & options);

    void start(Store & store) override;
    void on_put(const std::string & key) override;
    void tick(std::chrono::steady_clock::time_point now) override;

    // Shows the metrics of every message on the hub's status page.
    // REQUIRES: this outlives the hub.
    void report_to(Hub & hub) { hub_ = &hub; }

private:
    RunKeys                    keys_;
    SequencerOptions           options_;
    std::unique_ptr<Sequencer> sequencer_;
    std::atomic<Hub *>         hub_{nullptr};
};

}  // namespace gt
