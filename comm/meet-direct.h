// comm/meet-direct.h — a meeting at a hub where hosts serve their own messages (store-direct.h).
#pragma once

#include "comm/comm.h"

namespace gt {

// `at_hub`: where we meet. Starts our own server if our line of `hosts` has an address.
std::unique_ptr<Meeting> deliver_directly(
    std::unique_ptr<Meeting> at_hub,
    const Hosts &            hosts,
    const std::string &      name,
    const MeetOptions &      options
);

}  // namespace gt
