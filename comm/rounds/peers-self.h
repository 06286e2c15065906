// comm/rounds/peers-self.h — a host alone: its rounds hold its own message.
#pragma once

#include "ggml-train/peers.h"

namespace gt {

std::unique_ptr<Peers> make_self_peers(const std::string & host);

}  // namespace gt
