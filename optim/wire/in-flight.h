// optim/wire/in-flight.h — this rank's messages that were sent and are not yet committed.
#pragma once

#include "ggml-train/optimizer.h"

namespace gt {

// Two messages at most: one may travel while the next is prepared.
class InFlight {
public:
    void keep(uint64_t step, const Bytes & message);

    // Removes and returns the message of that step; empty if it is not kept.
    Bytes take(uint64_t step);

    // Drops the message of that step: it was committed.
    void forget(uint64_t step);

    // Checkpoints hold the host's messages, joined from the parts of its ranks.
    void add_state(OptimizerState & state);

private:
    struct Slot {
        uint64_t used = 0, step = 0;
        Bytes    message;
    };
    Slot slots_[2];
};

}  // namespace gt
