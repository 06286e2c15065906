// optim/messenger.h — momentum <-> messages of a whole model: packs this rank's, opens a round's,
// keeps what is in flight. Both optimizers (decoupled.h, local-steps.h) send and receive by it.
#pragma once

#include "optim/codec.h"
#include "optim/units.h"

namespace gt {

struct MessengerOptions {
    CodecHead head;                 // replicator, wire and layout
    uint64_t  every       = 1;      // a round every n steps
    bool      median_norm = false;  // scale each message to the median norm of the round
};

// The messages of a round that may be used, in commit order, and why the others may not.
struct Inbox {
    uint64_t                     step = 0;
    float                        lr   = 0.0f;  // what most messages say
    Plan                         plan;
    std::vector<int64_t>         offsets;  // of each unit in a message's content
    std::vector<const uint8_t *> contents;
    std::vector<double>          weights, scales;
    const Replicator *           replicator = nullptr;
    std::vector<std::string>     refused;  // "host: reason"

    bool empty() const { return contents.empty(); }
};

class Messenger {
public:
    // exact: null, or the replicator of the same content in fp32, for means (dense.h); taken too.
    Messenger(
        const Units &               units,
        const MessengerOptions &    options,
        std::unique_ptr<Replicator> own,
        std::unique_ptr<Replicator> exact
    );

    // Whether this step ends in a round.
    bool     due(uint64_t step) const { return (step + 1) % options_.every == 0; }
    uint64_t every() const { return options_.every; }

    // Folds what `fold` gives for each owned unit into the momentum and, if the step is due, extracts
    // what is sent. Returns the message (a part, if the rank does not own everything) and keeps a
    // copy; empty if not due. room: memory for as many floats as the unit has.
    using FoldOf = std::function<Fold(const Unit & unit, float * room)>;
    Bytes
    pack(uint64_t step, float lr, std::vector<std::vector<float>> & momentum, const FoldOf & fold);

    // pack in two halves, for those who extract elsewhere (on-device.h). start: the step's message, its
    // content zero; empty if not due. keep: a copy of it, filled.
    Bytes start(uint64_t step, float lr) const;
    void  keep(uint64_t step, const Bytes & message);

    // Opens and checks every message of a round; nothing that is refused leaves a trace.
    Inbox open(const Round & round) const;

    // Writes the mean of the round for a unit. REQUIRES: the inbox is not empty.
    void merge(const Inbox & inbox, int unit, float * update) const;

    // Adds what our message of that step held back to the momentum; nothing if it is not kept any more.
    void take_back(uint64_t step, std::vector<std::vector<float>> & momentum);

    // The same, for those who keep it elsewhere: gives each owned unit's content, in elements.
    using TakeOf = std::function<void(const Unit & unit, const float * content)>;
    void take_back(uint64_t step, const TakeOf & take);

    // Its two halves: our part of the message of that step, kept no longer, empty if it is gone; and
    // whether a unit's bytes in it may be added to the momentum.
    Bytes take(uint64_t step);
    bool  is_good(uint64_t step, const Unit & unit, const uint8_t * bytes) const;

    // The message of that step arrived, or need not be kept for another reason.
    void forget(uint64_t step);

    // Content of a message of that step, in bytes, of the whole host.
    int64_t content_bytes(uint64_t step) const;

    void add_state(OptimizerState & state);

private:
    void each_taken(
        uint64_t step,
        const std::function<
            void(const Plan & plan, const Unit & unit, const uint8_t * bytes, float * room)> & fn
    );

    struct Slot {
        uint64_t used = 0, step = 0;
        Bytes    message;
    };

    std::vector<int64_t> owned_offsets(const Plan & plan) const;
    Bytes                our_part(uint64_t step, Bytes message) const;
    Bytes blank(uint64_t step, float lr, const Plan & plan, uint64_t n_content) const;
    std::vector<int64_t> offsets_of(const Replicator & replicator, const Plan & plan) const;
    std::string          check(const Inbox & inbox, const Message & message, double & norm2) const;

    const Units &               units_;
    MessengerOptions            options_;
    std::unique_ptr<Replicator> own_, exact_;
    Slot                        slots_[2];  // one round may travel while the next is prepared
};

}  // namespace gt
