// tools/cli/output.h — no program replaces a file by accident.
#pragma once

#include "tools/cli/flags.h"

#include <filesystem>

namespace gt {

// Throws an Error if `out` is one of the inputs or a folder, or exists and `force` is not set.
inline void
check_output(const std::string & out, const std::vector<std::string> & inputs, bool force) {
    std::error_code none;
    if (std::filesystem::is_directory(out, none)) {
        throw Error(out + " is a folder; name a file to write");
    }
    for (const std::string & input : inputs) {
        if (std::filesystem::equivalent(out, input, none)) {
            throw Error(out + " is the input; name another file to write");
        }
    }
    if (!force && std::filesystem::exists(out, none)) {
        throw Error(out + " exists; name another file to write, or add --force to replace it");
    }
}

}  // namespace gt
