// comm/run/link-check.h — measures the link to the hub or store, and compares clock and version.
#pragma once

#include "comm/store/store.h"

namespace gt {

struct LinkCheck {
    double      delay_ms  = 0;  // round trip
    double      up_mbit   = 0;
    double      down_mbit = 0;
    double      clock_s   = 0;  // the hub's clock minus ours
    std::string version, boot;  // of the hub; empty for a store
};

// Takes two or three seconds, and stops early at about max_bytes in each direction. Throws
// StoreError, with what to do, if the hub can't be reached or has another key.
LinkCheck check_link(const HttpStoreOptions & options, uint64_t max_bytes = ~0ull);

// The same for a folder or bucket: puts, gets and removes a small value and one of 512 KiB, with keys
// that begin with `key` and are not used otherwise.
LinkCheck check_store(Store & store, const std::string & key);

// The result as text, one sentence per line; problems with what to do.
std::string describe(const LinkCheck & link);

}  // namespace gt
