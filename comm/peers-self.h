// comm/peers-self.h — a host alone: its rounds hold its own message.
#pragma once

#include "ggml-train/exchange.h"

namespace gt {

std::unique_ptr<RunPeers> make_self_peers(const std::string & host);

}  // namespace gt
