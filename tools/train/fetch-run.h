// tools/train/fetch-run.h — the current model of a run with several hosts, from their store.
#pragma once

#include "comm/run/hosts.h"
#include "models/model-file.h"

namespace gt {

// The last shared checkpoint and, unless rounds are in shares, the rounds after it. Only reads.
ModelFile fetch_run(const Hosts & hosts);

}  // namespace gt
