// comm/store/store-cache.h — keeps the last messages in memory.
//
// A host that is also the sequencer reads every message twice: from a bucket that would double the
// download. Only values under one prefix that are complete frames are kept: they are immutable.
#pragma once

#include "comm/store/store.h"

namespace gt {

// Keeps up to `max_bytes` of values whose keys begin with `prefix`.
std::unique_ptr<Store>
make_cached_store(std::unique_ptr<Store> inner, const std::string & prefix, size_t max_bytes);

}  // namespace gt
