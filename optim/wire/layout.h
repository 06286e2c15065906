// optim/wire/layout.h — sizes and offsets of a model's updates: where the bytes of each unit are, in the
// update of a host and in the part of a rank.
#pragma once

#include "optim/math/units.h"
#include "optim/wire/codec.h"
#include "optim/wire/replicator.h"

namespace gt {

// This rank's part of the update of one step.
struct Part {
    Plan plan;
    std::vector<int64_t>
            offsets;  // by unit: of its bytes in the part; only of units this rank owns
    int64_t size = 0;
};

class Layout {
public:
    // head: replicator, wire type and layout digest of the run. every: steps per round.
    Layout(
        const Units &               units,
        const UpdateHead &          head,
        uint64_t                    every,
        std::unique_ptr<Replicator> replicator
    );

    const Units &      units() const { return units_; }
    const UpdateHead & head() const { return head_; }
    const Replicator & replicator() const { return *replicator_; }
    uint64_t           every() const { return every_; }

    // Whether a round ends with this step.
    bool due(uint64_t step) const { return (step + 1) % every_ == 0; }

    Plan plan(uint64_t step) const { return replicator_->plan(step / every_); }

    // Offsets of all units in a host's update; the last entry is its size.
    std::vector<int64_t> offsets(const Plan & plan) const;

    Part part(uint64_t step) const;

    // The bytes of a part: its head written, its content zero.
    Bytes blank(const Part & part, uint64_t step, float lr) const;

    // This rank's part of an update that a checkpoint has kept: either a part already, or the update of
    // the whole host. Throws Error if it belongs to another run.
    Bytes part_of(const Part & part, uint64_t step, Bytes update) const;

private:
    const Units &               units_;
    UpdateHead                  head_;
    uint64_t                    every_;
    std::unique_ptr<Replicator> replicator_;
};

}  // namespace gt
