// tools/export-run.h — the model that hosts train together, from their store, without training.
#pragma once

#include "comm/hosts.h"
#include "ggml-train/model-file.h"

namespace gt {

// The last shared checkpoint and, where rounds are not dense, what followed it. Takes no part in the
// run and leaves nothing behind. An Error says what is missing.
ModelFile fetch_run(const Hosts & hosts);

}  // namespace gt
