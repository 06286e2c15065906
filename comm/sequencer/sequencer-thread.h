// comm/sequencer/sequencer-thread.h — runs a host's sequencer, where there is no hub: polls until destroyed.
#pragma once

#include "comm/sequencer/sequencer.h"

#include <atomic>
#include <thread>

namespace gt {

class SequencerThread {
public:
    // REQUIRES: `store` lives longer.
    SequencerThread(
        Store & store, const RunKeys & keys, const SequencerOptions & options, Millis poll
    );
    ~SequencerThread();

    bool leads() const { return leads_; }

private:
    std::atomic<bool> stop_{false}, leads_{false};
    std::thread       thread_;
};

}  // namespace gt
