// comm/line-check.h — before a run: does this machine reach the hub, how fast, and is its clock right?
#pragma once

#include "comm/store.h"

namespace gt {

struct LineCheck {
    double      delay_ms  = 0;  // there and back
    double      up_mbit   = 0;
    double      down_mbit = 0;
    double      clock_s   = 0;  // the hub's clock minus ours
    std::string version, boot;  // of the hub's program, and of this start of it; a store has none
};

// Takes two or three seconds, and stops early at about max_bytes each way. Throws StoreError with
// the next move if the hub can't be reached or has another key.
LineCheck check_line(const HttpStoreOptions & options, uint64_t max_bytes = ~0ull);

// The same for a folder or bucket: a small value and one of 512 kB are put, got and removed under
// names that begin with `key`, which nobody else uses.
LineCheck check_store(Store & store, const std::string & key);

// In plain words, one sentence a line; faults come with the next move.
std::string describe(const LineCheck & line);

}  // namespace gt
