// comm/run/host-key.h — this machine's own key, which the hosts of a run pin by its name.
#pragma once

#include "comm/wire/seal.h"

namespace gt {

// The seed in `path`; makes the file, readable by its owner only, at the first start. Throws Error if
// it can't be read or made.
Key32 load_host_key(const std::string & path);

// ggml-train/host-key in the user's config folder: $XDG_CONFIG_HOME or ~/.config.
std::string default_host_key_path();

}  // namespace gt
