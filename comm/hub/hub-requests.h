// comm/hub/hub-requests.h — the hub's answers to requests. Internal to hub.cpp.
#pragma once

#include "comm/hub/hub-limits.h"
#include "comm/hub/hub-status.h"
#include "comm/hub/hub-uploads.h"
#include "comm/hub/hub.h"
#include "comm/wire/keys.h"

#include <atomic>
#include <functional>

namespace httplib {
class ContentReader;
class Server;
class SSLServer;
struct Request;
struct Response;
}  // namespace httplib

namespace gt {

class HubRequests {
public:
    // `on_new` is called after a host has put a new key.
    HubRequests(
        const HubOptions &                           options,
        HubLog &                                     log,
        HubDisk &                                    disk,
        HubUploads &                                 uploads,
        HubStatus &                                  status,
        std::function<void(const std::string & key)> on_new
    );

    void set_up(httplib::SSLServer & server);
    void set_up_status(httplib::Server & server);  // the page, its data, the metrics

    const std::string & boot() const { return boot_; }
    bool                was_reached() const { return was_reached_; }  // by a host

private:
    using Request  = httplib::Request;
    using Response = httplib::Response;
    using Handler  = void (HubRequests::*)(const Request & req, Response & res);

    bool admit(const Request & req, Response & res);
    void refuse(const Request & req, Response & res, int code, const std::string & why);
    template <class Call>  // an Error becomes the answer
    void guard(const Request & req, Response & res, const Call & call);

    void wait_for_line(uint64_t n_bytes);
    void check(const std::string & key, std::span<const uint8_t> value) const;

    void put(const Request & req, Response & res, const httplib::ContentReader & reader);
    void get(const Request & req, Response & res);
    void feed(const Request & req, Response & res);
    void list(const Request & req, Response & res);
    void missing(const Request & req, Response & res);
    void time(const Request & req, Response & res);
    void speed(const Request & req, Response & res);

    const HubOptions & options_;
    HubLog &           log_;
    HubDisk &          disk_;
    HubUploads &       uploads_;
    HubStatus &        status_;
    HostLimits         limits_;
    RunPaths           paths_;
    Key32              own_;   // our public key
    std::string        boot_;  // random, new at every start
    std::atomic<bool>  was_reached_{false};

    std::function<void(const std::string & key)> on_new_;
};

}  // namespace gt
