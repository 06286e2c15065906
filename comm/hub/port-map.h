// comm/hub/port-map.h — asks the router to forward a port to this machine: NAT-PMP, then UPnP.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace gt {

// Maps the port, renews the mapping while it lives, and says once how it went. Built without
// libnatpmp and libminiupnpc, it says nothing and does nothing.
class PortMap {
public:
    PortMap(int port, std::function<void(const std::string &)> say);
    ~PortMap();

private:
    void run(int port, const std::function<void(const std::string &)> & say);

    std::mutex              mutex_;
    std::condition_variable wakeup_;
    bool                    stopping_ = false;
    std::thread             thread_;
};

// One attempt: the text for the user. `gateway`: an IPv4 address; empty: the default route's.
std::string map_port(int port, const std::string & gateway = "");

// Whether one of host:port[,host:port...] is reached from the internet over IPv4: a name, or an address
// that is neither loopback nor private.
bool is_public_address(const std::string & address);

}  // namespace gt
