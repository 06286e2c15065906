// comm/meet-direct.h — meets at a hub with hosts that serve their own messages (store-direct.h).
#pragma once

#include "comm/meet.h"

namespace gt {

// `at_hub`: the meeting at the hub. Starts our own server if our entry in `hosts` has an address.
std::unique_ptr<Meeting> deliver_directly(
    std::unique_ptr<Meeting> at_hub,
    const Hosts &            hosts,
    const std::string &      name,
    const MeetOptions &      options
);

}  // namespace gt
