// comm/hub/port-map.cpp — see port-map.h.
#include "comm/hub/port-map.h"

#include "ggml-train/base/base.h"

#include <arpa/inet.h>
#include <chrono>
#include <sys/select.h>
#ifdef GT_HAVE_NATPMP
#include <natpmp.h>
#endif
#ifdef GT_HAVE_MINIUPNPC
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnpcommands.h>
#endif

namespace gt {

constexpr auto kRenew      = std::chrono::minutes(20);
constexpr int  kLifetime_s = 3600;

// 10/8, 172.16/12, 192.168/16, 169.254/16, 127/8, and 100.64/10, which providers share.
static bool is_private(uint32_t ip) {
    return ip >> 24 == 10 || ip >> 20 == 0xac1 || ip >> 16 == 0xc0a8 || ip >> 16 == 0xa9fe ||
           ip >> 24 == 127 || ip >> 22 == (100u << 2 | 1);
}

bool is_public_address(const std::string & address) {
    if (const size_t comma = address.find(','); comma != address.npos) {
        return is_public_address(address.substr(0, comma)) ||
               is_public_address(address.substr(comma + 1));
    }
    const std::string host = address.substr(0, address.rfind(':'));
    in_addr           ip{};
    if (::inet_pton(AF_INET, host.c_str(), &ip) == 1) {
        return !is_private(ntohl(ip.s_addr));
    }
    return host != "localhost" && !host.starts_with("[");  // IPv6 needs no mapping
}

struct Mapping {
    bool        is_mapped = false;
    std::string external, how;
};

#ifdef GT_HAVE_NATPMP
static Mapping map_by_natpmp(int port, const std::string & gateway) {
    const auto answer = [](natpmp_t & at, natpmpresp_t & response) {
        int code = NATPMP_TRYAGAIN;
        while (code == NATPMP_TRYAGAIN) {  // repeats the request, with growing pauses
            timeval timeout{};
            getnatpmprequesttimeout(&at, &timeout);
            fd_set files;
            FD_ZERO(&files);
            FD_SET(at.s, &files);
            ::select(at.s + 1, &files, nullptr, nullptr, &timeout);
            code = at.try_number > 3 ? NATPMP_ERR_NOGATEWAYSUPPORT
                                     : readnatpmpresponseorretry(&at, &response);
        }
        return code >= 0;
    };
    Mapping      out{.how = "NAT-PMP"};
    natpmp_t     at{};
    natpmpresp_t address{}, mapped{};
    if (initnatpmp(&at, gateway.empty() ? 0 : 1, ::inet_addr(gateway.c_str())) >= 0) {
        const auto number = static_cast<uint16_t>(port);
        if (sendpublicaddressrequest(&at) >= 0 && answer(at, address) &&
            sendnewportmappingrequest(&at, NATPMP_PROTOCOL_TCP, number, number, kLifetime_s) >= 0 &&
            answer(at, mapped)) {
            char text[INET_ADDRSTRLEN] = "";
            ::inet_ntop(AF_INET, &address.pnu.publicaddress.addr, text, sizeof text);
            out.is_mapped = mapped.pnu.newportmapping.mappedpublicport == number;
            out.external  = text;
        }
    }
    closenatpmp(&at);
    return out;
}
#endif

#ifdef GT_HAVE_MINIUPNPC
static Mapping map_by_upnp(int port) {
    Mapping         out{.how = "UPnP"};
    int             error = 0;
    UPNPDev * const all   = upnpDiscover(2000, nullptr, nullptr, 0, 0, 2, &error);
    UPNPUrls        urls{};
    IGDdatas        data{};
    char            lan[64] = "";
#if MINIUPNPC_API_VERSION >= 18
    char       wan[64] = "";
    const bool found =
        all && UPNP_GetValidIGD(all, &urls, &data, lan, sizeof lan, wan, sizeof wan) == 1;
#else
    const bool found = all && UPNP_GetValidIGD(all, &urls, &data, lan, sizeof lan) == 1;
#endif
    if (found) {
        const std::string number = std::to_string(port), lifetime = std::to_string(kLifetime_s);
        char              external[40] = "";
        UPNP_GetExternalIPAddress(urls.controlURL, data.first.servicetype, external);
        out.external  = external;
        out.is_mapped = UPNP_AddPortMapping(
                            urls.controlURL, data.first.servicetype, number.c_str(), number.c_str(),
                            lan, "ggml-train hub", "TCP", nullptr, lifetime.c_str()
                        ) == UPNPCOMMAND_SUCCESS;
    }
    if (urls.controlURL) {
        FreeUPNPUrls(&urls);
    }
    freeUPNPDevlist(all);
    return out;
}
#endif

std::string map_port([[maybe_unused]] int port, [[maybe_unused]] const std::string & gateway) {
    Mapping mapping;
#ifdef GT_HAVE_NATPMP
    mapping = map_by_natpmp(port, gateway);
#endif
#ifdef GT_HAVE_MINIUPNPC
    if (!mapping.is_mapped && gateway.empty()) {
        mapping = map_by_upnp(port);
    }
#endif
    if (mapping.how.empty()) {
        return "";
    }
    in_addr ip{};
    if (::inet_pton(AF_INET, mapping.external.c_str(), &ip) == 1 && is_private(ntohl(ip.s_addr))) {
        return "the router's own address " + mapping.external +
               " is not public: your provider shares addresses, so nobody can connect to this "
               "machine over IPv4; use IPv6, a bucket, a tunnel or a rented machine "
               "(comm/README.md)";
    }
    if (!mapping.is_mapped) {
        return format(
            "the router does not forward ports by itself (NAT-PMP, UPnP); forward TCP port %d to "
            "this machine in its settings, unless hosts reach it already",
            port
        );
    }
    return format(
        "the router forwards %s:%d to this machine (%s)", mapping.external.c_str(), port,
        mapping.how.c_str()
    );
}

PortMap::PortMap(int port, std::function<void(const std::string &)> say)
    : thread_([this, port, say = std::move(say)] { run(port, say); }) {}

PortMap::~PortMap() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wakeup_.notify_all();
    thread_.join();
}

void PortMap::run(int port, const std::function<void(const std::string &)> & say) {
    std::string      said;
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        lock.unlock();
        const std::string text = map_port(port);
        if (text != said && !text.empty()) {
            say(text);
        }
        said = text;
        lock.lock();
        wakeup_.wait_for(lock, kRenew, [&] { return stopping_; });
    }
}

}  // namespace gt
