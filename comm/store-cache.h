// comm/store-cache.h — remembers messages that passed through this process.
//
// Where a host is also the sequencer, both read every message: from a bucket that would be twice the
// download. Values under message keys are immutable and checked (a whole frame) before they are kept;
// the last few dozen megabytes are.
#pragma once

#include "comm/store.h"

namespace gt {

// `part`: only keys that contain it are kept, e.g. "/message/".
std::unique_ptr<Store>
make_cached_store(std::unique_ptr<Store> inner, const std::string & part, size_t max_bytes);

}  // namespace gt
