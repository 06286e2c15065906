// comm/hub-requests.cpp — the hub's requests, each a few lines over hub-disk; protocol.md lists them.
//
//   PUT    /v/KEY[?if_absent=1]              201 new, 200 was there, 412 another value is there
//   PUT    /v/KEY?upload=&part=&part_bytes=&size=   one part; 202 until the last one is there
//   GET    /missing/KEY?upload=...           numbers of the parts that are not there
//   GET    /v/KEY?wait=MS&offset=&length=&version=  200 with X-Size and X-Version, 404
//   GET    /feed?lane=&lanes=&prefix=        new values as they come (hub-feed.cpp)
//   GET    /list?prefix=&after=              keys, one a line; X-More: 1 if there are more
//   DELETE /v/KEY                            204
//   GET    /time, GET and PUT /speed         clock, delay and speed for the check before a run
//   GET    / and /status.json, /metrics      for people; also on loopback without TLS
#include "comm/hub-requests.h"

#include "comm/frame.h"

#include <charconv>
#include <fstream>
#include <sodium.h>

namespace gt {

static constexpr size_t   kMaxBody   = 1 << 20;  // larger values come in parts
static constexpr uint64_t kMaxWaitMs = 30'000;
static constexpr size_t   kListKeys  = 5'000;

using Request  = httplib::Request;
using Response = httplib::Response;

uint64_t number_of(const Request & req, const char * name, uint64_t otherwise) {
    const std::string text  = req.get_param_value(name);
    uint64_t          value = otherwise;
    if (!text.empty()) {
        const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (failed != std::errc{} || end != text.data() + text.size()) {
            throw Error(std::string("?") + name + " is not a number");
        }
    }
    return value;
}

static std::string new_boot_id() {
    const Key32 random = new_secret();
    return to_base64(std::span(random).first(9));
}

static HubDisk::Part part_of(const Request & req) {
    HubDisk::Part part;
    part.upload     = req.get_param_value("upload");
    part.index      = number_of(req, "part", 0);
    part.part_bytes = number_of(req, "part_bytes", 0);
    part.size       = number_of(req, "size", 0);
    part.if_absent  = req.has_param("if_absent");
    return part;
}

static Bytes read_body(const Request & req, const httplib::ContentReader & reader) {
    if (!req.has_header("Content-Length")) {
        throw Error("a body without Content-Length");
    }
    const uint64_t length = req.get_header_value_u64("Content-Length");
    Bytes          body;
    body.reserve(size_t(length));  // admit() has checked it
    reader([&](const char * data, size_t n) {
        body.insert(body.end(), data, data + n);
        return body.size() <= length;
    });
    if (body.size() != length) {
        throw Error("a body shorter than its Content-Length");
    }
    return body;
}

HubRequests::HubRequests(
    const HubOptions &                           options,
    HubLog &                                     log,
    HubDisk &                                    disk,
    HubStatus &                                  status,
    std::function<void(const std::string & key)> on_new
)
    : options_(options), log_(log), disk_(disk), status_(status),
      limits_(options.host_bytes_s, options.host_requests_s, options.max_hosts),
      boot_(new_boot_id()), on_new_(std::move(on_new)) {}

void HubRequests::refuse(const Request & req, Response & res, int code, const std::string & why) {
    const std::string host = req.get_header_value("X-Host");
    const std::string name = valid_host_name(host) ? host : "?";
    res.status             = code;
    res.set_content(why, "text/plain");
    status_.count(name, 0, 0, true);
    log_.fault("refused " + name + " " + req.remote_addr + " " + req.method + ": " + why);
}

// Token, name and limits, before a body is read or a key is looked at.
bool HubRequests::admit(const Request & req, Response & res) {
    const std::string token  = "Bearer " + options_.keys.token;
    const std::string theirs = req.get_header_value("Authorization");
    if (theirs.size() != token.size() ||
        sodium_memcmp(theirs.data(), token.data(), token.size()) != 0) {
        refuse(req, res, 401, "no token of this run");
        return false;
    }
    const std::string host = req.get_header_value("X-Host");
    if (!valid_host_name(host) || req.path.size() > 600) {
        refuse(req, res, 400, "no valid X-Host, or a path that is too long");
        return false;
    }
    const uint64_t up   = req.get_header_value_u64("Content-Length");
    const uint64_t down = req.path.starts_with("/v/") && req.method == "GET"
                              ? std::min<uint64_t>(number_of(req, "length", 0), kMaxBody)
                              : 0;
    if (up > kMaxBody) {
        refuse(req, res, 413, "a body over 1 MB; send it in parts");
        res.set_header("Connection", "close");
        return false;
    }
    switch (limits_.allow(host, up + down)) {
        case HostLimits::Answer::yes:
            return true;
        case HostLimits::Answer::too_many_hosts:
            refuse(req, res, 403, "this hub has its largest number of hosts");
            return false;
        case HostLimits::Answer::too_fast:
            res.set_header("Retry-After", "1");
            refuse(req, res, 429, "over the limit of bytes or requests per second for one host");
            return false;
    }
    return false;
}

void HubRequests::answer_error(const Request & req, Response & res) {
    try {
        throw;
    } catch (const StoreError & full) {
        refuse(req, res, 507, full.what());
    } catch (const Error & wrong) {
        refuse(req, res, 400, wrong.what());
    }
}

httplib::Server::Handler HubRequests::plain(void (HubRequests::*handler
)(const Request &, Response &)) {
    return [this, handler](const Request & req, Response & res) {
        try {
            (this->*handler)(req, res);
        } catch (const Error &) {
            answer_error(req, res);
        }
    };
}

void HubRequests::set_up(httplib::SSLServer & server) {
    server.set_payload_max_length(kMaxBody);
    server.set_pre_routing_handler([this](const Request & req, Response & res) {
        res.set_header("X-Boot", boot_);
        bool admitted = false;
        try {
            admitted = admit(req, res);
        } catch (const Error &) {
            answer_error(req, res);
        }
        return admitted ? httplib::Server::HandlerResponse::Unhandled
                        : httplib::Server::HandlerResponse::Handled;
    });
    server.Put("/v/.+", [this](const Request & req, Response & res, const Reader & reader) {
        try {
            put(req, res, reader);
        } catch (const Error &) {
            answer_error(req, res);
        }
    });
    server.Put("/speed", [](const Request &, Response & res, const Reader & reader) {
        reader([](const char *, size_t) { return true; });
        res.status = 200;
    });
    server.Get("/v/.+", plain(&HubRequests::get));
    server.Get("/feed", plain(&HubRequests::feed));
    server.Get("/missing/.+", plain(&HubRequests::missing));
    server.Get("/list", plain(&HubRequests::list));
    server.Delete("/v/.+", plain(&HubRequests::remove));
    server.Get("/time", plain(&HubRequests::time));
    server.Get("/speed", plain(&HubRequests::speed));
    set_up_status(server);
}

void HubRequests::remove(const Request & req, Response & res) {
    disk_.remove(req.path.substr(3));
    res.status = 204;
}

void HubRequests::missing(const Request & req, Response & res) {
    std::string out;
    for (const uint64_t i : disk_.missing_parts(req.path.substr(9), part_of(req))) {
        out += std::to_string(i) + "\n";
    }
    res.set_content(out, "text/plain");
}

void HubRequests::list(const Request & req, Response & res) {
    const auto keys =
        disk_.list_some(req.get_param_value("prefix"), req.get_param_value("after"), kListKeys);
    std::string out;
    for (const std::string & key : keys) {
        out += key + "\n";
    }
    res.set_header("X-More", keys.size() == kListKeys ? "1" : "0");
    res.set_content(out, "text/plain");
}

void HubRequests::time(const Request &, Response & res) {
    const auto now = (unsigned long long) wall_ms();
    res.set_content(format("%llu %s %s", now, boot_.c_str(), kVersion), "text/plain");
}

void HubRequests::speed(const Request & req, Response & res) {
    const uint64_t n = std::min<uint64_t>(number_of(req, "bytes", 0), kMaxBody);
    res.set_content(std::string(n, 'x'), "application/octet-stream");
}

void HubRequests::put(const Request & req, Response & res, const httplib::ContentReader & reader) {
    const std::string key  = req.path.substr(3);
    const std::string host = req.get_header_value("X-Host");
    const Bytes       body = read_body(req, reader);
    status_.count(host, body.size(), 0, false);
    if (key.starts_with("metrics/")) {
        if (!status_.add_metrics(host, std::string(body.begin(), body.end()))) {
            throw Error("a metrics line that is not name=number name=number ...");
        }
        res.status = 201;
        return;
    }
    const HubDisk::Outcome outcome = req.has_param("upload")
                                         ? disk_.write_part(key, part_of(req), body)
                                         : disk_.write(key, body, req.has_param("if_absent"));
    switch (outcome) {
        case HubDisk::Outcome::created:
            res.status = 201;
            break;
        case HubDisk::Outcome::there:
            res.status = 200;
            break;
        case HubDisk::Outcome::other:
            res.status = 412;
            break;
        case HubDisk::Outcome::incomplete:
            res.status = 202;
            break;
    }
    if (outcome == HubDisk::Outcome::created) {
        on_new_(key);
    }
}

void HubRequests::get(const Request & req, Response & res) {
    const std::string key    = req.path.substr(3);
    const uint64_t    offset = number_of(req, "offset", 0);
    const uint64_t    length = std::min<uint64_t>(number_of(req, "length", kMaxBody), kMaxBody);
    const uint64_t    wait   = std::min(number_of(req, "wait", 0), kMaxWaitMs);
    const auto        entry  = disk_.find(key, std::chrono::milliseconds(wait));
    const uint64_t    wanted = number_of(req, "version", 0);
    if (!entry || (wanted != 0 && wanted != entry->version) || offset > entry->size) {
        res.status = 404;
        return;
    }
    const uint64_t n    = std::min(length, entry->size - offset);
    const auto     part = disk_.read(key, entry->version, offset, n);
    if (!part) {
        res.status = 404;  // written again or removed just now
        return;
    }
    res.set_header("X-Size", std::to_string(entry->size));
    res.set_header("X-Version", std::to_string(entry->version));
    res.set_content(std::string(part->begin(), part->end()), "application/octet-stream");
    status_.count(req.get_header_value("X-Host"), 0, n, false);
}

// A page elsewhere that points its own name at 127.0.0.1 gets nothing.
static bool may_look(const Request & req) {
    const std::string host = req.get_header_value("Host");
    const std::string name = host.substr(0, host.rfind(':'));
    return req.ssl || name == "127.0.0.1" || name == "localhost";
}

void HubRequests::set_up_status(httplib::Server & server) {
    server.Get("/", plain(&HubRequests::page));
    server.Get("/status.json", plain(&HubRequests::page));
    server.Get("/metrics", plain(&HubRequests::page));
}

void HubRequests::page(const Request & req, Response & res) {
    if (!may_look(req)) {
        res.status = 403;
    } else if (req.path == "/") {
        res.set_header(
            "Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; "
                                       "style-src 'unsafe-inline'; connect-src 'self'"
        );
        res.set_content(kStatusPage, "text/html");
    } else if (req.path == "/status.json") {
        res.set_content(status_.json({disk_.n_keys(), disk_.total_bytes()}), "application/json");
    } else {
        std::ifstream in(status_.metrics_file(), std::ios::binary);
        res.set_content(std::string{std::istreambuf_iterator<char>(in), {}}, "text/plain");
    }
}

}  // namespace gt
