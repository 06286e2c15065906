// comm/hub/hub-requests.cpp — the hub's requests, each a few lines over hub-disk; protocol.md lists them.
//
//   PUT    /v/KEY                            201 new, 200 same bytes, 412 another value exists
//   PUT    /v/KEY?upload=&part=&part_bytes=&size=   one range; 202 until all are there
//   GET    /missing/KEY?upload=...           numbers of the missing ranges
//   GET    /v/KEY?wait=MS&offset=&length=&version=  200 with X-Size and X-Version, 404
//   GET    /feed?lane=&lanes=&prefix=        new values as they arrive (feed.h)
//   GET    /list?prefix=&after=              keys, one per line; X-More: 1 if there are more
//   GET    /time, GET and PUT /speed         clock, delay and speed for the link check
//   GET    / and /status.json, /metrics      the status page; also on loopback without TLS
#include "comm/hub/hub-requests.h"

#include "comm/http/feed.h"
#include "comm/sequencer/run-settings.h"
#include "comm/status/page.h"
#include "comm/wire/keys.h"

#include <fstream>
#include <httplib.h>
#include <sodium.h>

namespace gt {

using namespace std::chrono_literals;

static constexpr size_t   kMaxBody      = 1 << 20;  // larger values arrive in ranges
static constexpr size_t   kMaxPath      = 600;
static constexpr uint64_t kMaxWaitMs    = 30'000;
static constexpr size_t   kListKeys     = 5'000;  // per answer
static constexpr size_t   kMaxPrefixes  = 8;      // of a feed
static constexpr auto     kKeepAlive    = 5s;     // an empty range on an idle lane
static constexpr auto     kTooFastPause = 100ms;
static constexpr auto     kLinePause    = 10ms;

using Request  = httplib::Request;
using Response = httplib::Response;

// A value that the sender must not write. Answered with status 403.
class Forbidden : public Error {
public:
    using Error::Error;
};

// A number of the query; `otherwise` if it is missing.
static uint64_t number_of(const Request & req, const char * name, uint64_t otherwise) {
    const std::string text  = req.get_param_value(name);
    const auto        value = text.empty() ? std::optional(otherwise) : parse_number(text);
    if (!value) {
        throw Error(std::string("?") + name + " is not a number");
    }
    return *value;
}

// An IPv4 address as it is usually written.
static std::string plain_address(const Request & req) {
    constexpr std::string_view kMapped = "::ffff:";
    const std::string &        from    = req.remote_addr;
    return from.starts_with(kMapped) ? from.substr(kMapped.size()) : from;
}

static std::string new_boot_id() {
    const Key32 random = new_secret();
    return to_base64(std::span(random).first(9));
}

static HubUploads::Range range_of(const Request & req) {
    HubUploads::Range range;
    range.upload      = req.get_param_value("upload");
    range.index       = number_of(req, "part", 0);
    range.range_bytes = number_of(req, "part_bytes", 0);
    range.size        = number_of(req, "size", 0);
    return range;
}

static Bytes read_body(const Request & req, const httplib::ContentReader & reader) {
    if (!req.has_header("Content-Length")) {
        throw Error("Content-Length is missing");
    }
    const uint64_t length = req.get_header_value_u64("Content-Length");
    Bytes          body;
    body.reserve(size_t(length));  // admit() has checked the length
    reader([&](const char * data, size_t n) {
        body.insert(body.end(), data, data + n);
        return body.size() <= length;
    });
    if (body.size() != length) {
        throw Error("the body is shorter than its Content-Length");
    }
    return body;
}

HubRequests::HubRequests(
    const HubOptions &                           options,
    HubLog &                                     log,
    HubDisk &                                    disk,
    HubUploads &                                 uploads,
    HubStatus &                                  status,
    std::function<void(const std::string & key)> on_new
)
    : options_(options), log_(log), disk_(disk), uploads_(uploads), status_(status),
      limits_(options.host_bytes_s, options.host_requests_s), paths_(options.keys.run),
      own_(public_key(options.keys.host_seed)), boot_(new_boot_id()), on_new_(std::move(on_new)) {}

void HubRequests::refuse(const Request & req, Response & res, int code, const std::string & why) {
    const std::string host = req.get_header_value("X-Host");
    const std::string name = valid_host_name(host) ? host : "?";
    res.status             = code;
    res.set_content(why, "text/plain");
    status_.count(name, 0, 0, true);
    log_.fault("refused " + name + " " + plain_address(req) + " " + req.method + ": " + why);
}

// Checks token, name and limits, before the body is read.
bool HubRequests::admit(const Request & req, Response & res) {
    const std::string token  = "Bearer " + options_.keys.token;
    const std::string theirs = req.get_header_value("Authorization");
    if (theirs.size() != token.size() ||
        sodium_memcmp(theirs.data(), token.data(), token.size()) != 0) {
        refuse(req, res, 401, "wrong token");
        return false;
    }
    const std::string host = req.get_header_value("X-Host");
    if (!valid_host_name(host) || req.path.size() > kMaxPath) {
        refuse(req, res, 400, "X-Host is invalid, or the path is too long");
        return false;
    }
    const uint64_t up   = req.get_header_value_u64("Content-Length");
    const uint64_t down = req.path.starts_with("/v/") && req.method == "GET"
                              ? std::min<uint64_t>(number_of(req, "length", 0), kMaxBody)
                              : 0;
    if (up > kMaxBody) {
        refuse(req, res, 413, "the body is larger than 1 MiB; send it in ranges");
        res.set_header("Connection", "close");
        return false;
    }
    if (!limits_.allow(host, up + down)) {
        res.set_header("Retry-After", "1");
        refuse(req, res, 429, "this host is over its limit of bytes or requests per second");
        return false;
    }
    was_reached_ = true;
    return true;
}

template <class Call>
void HubRequests::guard(const Request & req, Response & res, const Call & call) {
    try {
        call();
    } catch (const StoreError & full) {
        refuse(req, res, 507, full.what());
    } catch (const Forbidden & wrong) {
        refuse(req, res, 403, wrong.what());
    } catch (const Error & wrong) {
        refuse(req, res, 400, wrong.what());
    }
}

void HubRequests::set_up(httplib::SSLServer & server) {
    const auto route = [this](Handler handler) {
        return [this, handler](const Request & req, Response & res) {
            guard(req, res, [&] { (this->*handler)(req, res); });
        };
    };
    using Reader = httplib::ContentReader;
    server.set_payload_max_length(kMaxBody);
    server.set_pre_routing_handler([this](const Request & req, Response & res) {
        res.set_header("X-Boot", boot_);
        bool admitted = false;
        guard(req, res, [&] { admitted = admit(req, res); });
        return admitted ? httplib::Server::HandlerResponse::Unhandled
                        : httplib::Server::HandlerResponse::Handled;
    });
    server.Put("/v/.+", [this](const Request & req, Response & res, const Reader & reader) {
        guard(req, res, [&] { put(req, res, reader); });
    });
    server.Put("/speed", [](const Request &, Response & res, const Reader & reader) {
        reader([](const char *, size_t) { return true; });
        res.status = 200;
    });
    server.Get("/v/.+", route(&HubRequests::get));
    server.Get("/feed", route(&HubRequests::feed));
    server.Get("/missing/.+", route(&HubRequests::missing));
    server.Get("/list", route(&HubRequests::list));
    server.Get("/time", route(&HubRequests::time));
    server.Get("/speed", route(&HubRequests::speed));
    set_up_status(server);
}

void HubRequests::missing(const Request & req, Response & res) {
    std::string out;
    for (const uint64_t i : uploads_.missing(req.path.substr(9), range_of(req))) {
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
    wait_for_line(n);
    res.set_content(std::string(n, 'x'), "application/octet-stream");
}

// A value counts only if the machine that has its host's name has signed it, commits and removals only if we
// have. A host may put it for another one, whose value the store has lost. What is no frame is nobody's: a
// frame takes its place.
void HubRequests::check(const std::string & key, std::span<const uint8_t> value) const {
    const auto frame    = parse_frame(value);
    const auto presence = paths_.parse_presence(key);
    if (options_.read_only || (!frame && paths_.is_sequencers(key))) {
        throw Forbidden("only this server writes " + key);
    }
    if (!frame || frame->run != options_.keys.run) {
        return;
    }
    const bool is_ours =
        paths_.is_sequencers(key) || (presence && presence->kind == PresenceKey::Kind::removed);
    const auto by = is_ours          ? std::optional(own_)
                    : options_.hooks ? options_.hooks->key_of(frame->host)
                                     : std::nullopt;
    if (!belongs_to(paths_, key, *frame) || (by && *by != frame->signer)) {
        throw Forbidden(
            "the value of " + key + " was not made by the machine that has the name '" +
            frame->host + "' in this run"
        );
    }
}

void HubRequests::put(const Request & req, Response & res, const httplib::ContentReader & reader) {
    const std::string key  = req.path.substr(3);
    const std::string host = req.get_header_value("X-Host");
    const Bytes       body = read_body(req, reader);
    status_.count(host, body.size(), 0, false);
    HubDisk::Outcome outcome{};
    if (req.has_param("upload")) {
        outcome = uploads_.write(key, range_of(req), body, [&](std::span<const uint8_t> value) {
            check(key, value);
        });
    } else {
        check(key, body);
        outcome = disk_.write(key, body);
    }
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

// Keeps the upload limit; commits and other small values go first.
void HubRequests::wait_for_line(uint64_t n_bytes) {
    if (options_.up_limit && n_bytes <= kSmallValue) {
        options_.up_limit->charge(n_bytes);
        return;
    }
    for (uint64_t left = options_.up_limit ? n_bytes : 0; left > 0 && !disk_.is_stopping();) {
        const size_t n = options_.up_limit->take(left);
        left -= n;
        if (n == 0) {
            std::this_thread::sleep_for(kLinePause);
        }
    }
}

void HubRequests::get(const Request & req, Response & res) {
    const std::string key    = req.path.substr(3);
    const uint64_t    offset = number_of(req, "offset", 0);
    const uint64_t    length = std::min<uint64_t>(number_of(req, "length", kMaxBody), kMaxBody);
    const uint64_t    wait   = std::min(number_of(req, "wait", 0), kMaxWaitMs);
    if (options_.hooks) {
        options_.hooks->on_get(req.get_header_value("X-Host"), key);
    }
    const auto     entry  = disk_.find(key, std::chrono::milliseconds(wait));
    const uint64_t wanted = number_of(req, "version", 0);
    if (!entry || (wanted != 0 && wanted != entry->version) || offset > entry->size) {
        res.status = 404;
        return;
    }
    const uint64_t n     = std::min(length, entry->size - offset);
    const auto     bytes = disk_.read(key, entry->version, offset, n);
    if (!bytes) {
        res.status = 404;  // removed meanwhile
        return;
    }
    wait_for_line(n);
    res.set_header("X-Size", std::to_string(entry->size));
    res.set_header("X-Version", std::to_string(entry->version));
    res.set_content(std::string(bytes->begin(), bytes->end()), "application/octet-stream");
    status_.count(req.get_header_value("X-Host"), 0, n, false);
}

// One lane: an answer without end.
void HubRequests::feed(const Request & req, Response & res) {
    const auto        lane  = static_cast<int>(number_of(req, "lane", 0));
    const auto        lanes = static_cast<int>(number_of(req, "lanes", 1));
    const std::string host  = req.get_header_value("X-Host");
    const size_t      n     = req.get_param_value_count("prefix");
    if (lanes < 1 || lanes > kMaxLanes || lane < 0 || lane >= lanes || n < 1 || n > kMaxPrefixes) {
        throw Error(
            format("a feed needs lane < lanes <= %d and 1 to %zu prefixes", kMaxLanes, kMaxPrefixes)
        );
    }
    std::vector<std::string> prefixes(n);
    for (size_t i = 0; i < n; ++i) {
        prefixes[i] = req.get_param_value("prefix", i);
    }
    const auto next = [this, lane, lanes, host, prefixes, version = disk_.newest_version(),
                       begun = false](size_t, httplib::DataSink & sink) mutable {
        // wait for the next value; the first answer opens the lane
        const auto found = begun ? disk_.follow(prefixes, version, kKeepAlive) : std::nullopt;
        begun            = true;
        FeedRange range;
        Bytes     value, out;
        if (found) {
            const auto & [key, entry] = *found;
            version                   = entry.version;
            const auto [offset, size] = lane_range(entry.size, lane, lanes);
            const auto bulk           = paths_.parse_bulk(key);
            if (size == 0 || entry.size > kMaxFeedValue || (bulk && bulk->id.host == host)) {
                return true;  // a host has its own messages
            }
            auto bytes = disk_.read(key, entry.version, offset, size);
            if (!bytes) {
                return true;  // removed meanwhile
            }
            value = std::move(*bytes);
            range = {key, entry.size, offset, value};
            while (!limits_.allow(host, size) && !disk_.is_stopping()) {
                std::this_thread::sleep_for(kTooFastPause);
            }
            wait_for_line(size);
            status_.count(host, 0, size, false);
        }
        append_range(out, range);
        return sink.write(reinterpret_cast<const char *>(out.data()), out.size()) &&
               !disk_.is_stopping();
    };
    res.set_chunked_content_provider("application/octet-stream", next);
}

void HubRequests::set_up_status(httplib::Server & server) {
    serve_page(server, [this] {
        const auto settings = read_settings(disk_, options_.keys);
        const bool known    = settings && settings->contains("steps");
        return status_.json(
            {disk_.n_keys(), disk_.total_bytes(),
             known ? std::strtoull(settings->at("steps").c_str(), nullptr, 10) : 0}
        );
    });
    server.Get("/metrics", [this](const Request & req, Response & res) {
        if (!may_look(req)) {
            res.status = 403;
            return;
        }
        std::ifstream in(status_.metrics_file(), std::ios::binary);
        res.set_content(std::string{std::istreambuf_iterator<char>(in), {}}, "text/plain");
    });
}

}  // namespace gt
