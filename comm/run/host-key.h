// comm/run/host-key.h — this machine's own key, which the hosts of a run pin by its name.
#pragma once

#include "comm/wire/seal.h"
#include "ggml-train/base/file.h"

namespace gt {

// The seed in `path`; makes the file, readable by its owner only, at the first start. Throws Error if
// it can't be read or made.
Key32 load_host_key(const std::string & path);

// Held while a process takes part in a run under a name. A second process of the machine gets an Error.
class NameLock {
public:
    // The lock is a file in `folder`.
    NameLock(const std::string & folder, uint64_t run, const std::string & name);

    // Equal for all processes that have held this lock since the machine was started: of them only the
    // last one can be alive. A copy of the folder or machine has another value.
    const Key32 & process() const { return process_; }

private:
    std::string path_;
    FileLock    lock_;
    Key32       process_;
};

// ggml-train/host-key in the user's config folder: $XDG_CONFIG_HOME or ~/.config.
std::string default_host_key_path();

}  // namespace gt
