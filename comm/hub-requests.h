// comm/hub-requests.h — what the hub answers to each request. Internal to hub.cpp.
#pragma once

#include "comm/hub-disk.h"
#include "comm/hub-guard.h"
#include "comm/hub-status.h"
#include "comm/hub.h"

#include <functional>
#include <httplib.h>

namespace gt {

// A number of the query. An Error if it is none.
uint64_t number_of(const httplib::Request & req, const char * name, uint64_t otherwise);

class HubRequests {
public:
    // `on_new` is called after a host has put a key that was not there.
    HubRequests(
        const HubOptions &                           options,
        HubLog &                                     log,
        HubDisk &                                    disk,
        HubStatus &                                  status,
        std::function<void(const std::string & key)> on_new
    );

    void set_up(httplib::SSLServer & server);
    void set_up_status(httplib::Server & server);  // the page, its data, the metrics

    const std::string & boot() const { return boot_; }

private:
    using Request  = httplib::Request;
    using Response = httplib::Response;
    using Reader   = httplib::ContentReader;

    bool admit(const Request & req, Response & res);
    void refuse(const Request & req, Response & res, int code, const std::string & why);
    void put(const Request & req, Response & res, const Reader & reader);
    void get(const Request & req, Response & res);
    void feed(const Request & req, Response & res);  // hub-feed.cpp
    void list(const Request & req, Response & res);
    void missing(const Request & req, Response & res);
    void remove(const Request & req, Response & res);
    void time(const Request & req, Response & res);
    void speed(const Request & req, Response & res);
    void page(const Request & req, Response & res);

    httplib::Server::Handler plain(void (HubRequests::*handler)(const Request &, Response &));
    void answer_error(const Request & req, Response & res);  // of the exception in flight

    const HubOptions & options_;
    HubLog &           log_;
    HubDisk &          disk_;
    HubStatus &        status_;
    HostLimits         limits_;
    std::string        boot_;

    std::function<void(const std::string & key)> on_new_;
};

}  // namespace gt
