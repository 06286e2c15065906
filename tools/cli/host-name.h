// tools/cli/host-name.h — the name of this machine in hosts.txt.
#pragma once

#include <string>
#include <unistd.h>

namespace gt {

// `given`, or without it the host name, up to its first dot.
inline std::string own_host_name(const std::string & given) {
    if (!given.empty()) {
        return given;
    }
    char name[65] = {};
    ::gethostname(name, sizeof(name) - 1);
    const std::string host = name;
    return host.substr(0, host.find('.'));
}

}  // namespace gt
