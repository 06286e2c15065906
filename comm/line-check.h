// comm/line-check.h — before a run: does this machine reach the hub, how fast, and is its clock right?
#pragma once

#include "comm/store.h"

namespace gt {

struct LineCheck {
    double      delay_ms  = 0;  // there and back
    double      up_mbit   = 0;
    double      down_mbit = 0;
    double      clock_s   = 0;  // the hub's clock minus ours
    std::string version, boot;  // of the hub's program, and of this start of it
};

// Takes two or three seconds. Throws StoreError with the next move if the
// hub can't be reached or has another key.
LineCheck check_line(const HttpStoreOptions & options);

// In plain words, one sentence a line; faults come with the next move.
std::string describe(const LineCheck & line);

}  // namespace gt
