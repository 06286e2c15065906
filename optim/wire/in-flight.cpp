#include "optim/wire/in-flight.h"

#include "optim/wire/codec.h"

#include <utility>

namespace gt {

void InFlight::keep(uint64_t step, const Bytes & message) {
    // if both slots are used, the older round never closed: replace it
    Slot & slot  = slots_[0].used == 0               ? slots_[0]
                   : slots_[1].used == 0             ? slots_[1]
                   : slots_[0].step < slots_[1].step ? slots_[0]
                                                     : slots_[1];
    slot.used    = 1;
    slot.step    = step;
    slot.message = message;
}

Bytes InFlight::take(uint64_t step) {
    for (Slot & slot : slots_) {
        if (slot.used != 0 && slot.step == step) {
            slot.used = 0;
            return std::exchange(slot.message, {});
        }
    }
    return {};
}

void InFlight::forget(uint64_t step) {
    (void) take(step);
}

// The host's message. Right after a checkpoint was loaded, every rank has all of it; later, parts.
static Bytes join_kept(std::span<const Bytes> of_ranks) {
    for (const Bytes & kept : of_ranks) {
        std::string why;
        const auto  head = read_head(kept, why);
        if (head && !head->is_part()) {
            return kept;
        }
    }
    return join_parts(of_ranks);
}

void InFlight::add_state(OptimizerState & state) {
    for (int i = 0; i < 2; ++i) {
        const std::string name = format("flight%d", i);
        state.counters.push_back({name + ".used", &slots_[i].used, false});
        state.counters.push_back({name + ".step", &slots_[i].step, false});
        state.blobs.push_back({name + ".message", &slots_[i].message, false, join_kept});
    }
}

}  // namespace gt
