// comm/hub-feed.cpp — the hub's end of a lane: writes what comes, until the host goes (feed.h).
#include "comm/feed.h"
#include "comm/hub-requests.h"

namespace gt {

using namespace std::chrono_literals;

static constexpr auto kSignOfLife = 5s;

// A host has its own messages: a part of their keys is its name.
static bool is_of(const std::string & key, const std::string & host) {
    return key.find("/" + host + "/") != std::string::npos;
}

void HubRequests::feed(const Request & req, Response & res) {
    const auto        lane  = static_cast<int>(number_of(req, "lane", 0));
    const auto        lanes = static_cast<int>(number_of(req, "lanes", 1));
    const std::string host  = req.get_header_value("X-Host");
    const size_t      n     = req.get_param_value_count("prefix");
    if (lanes < 1 || lanes > kMaxLanes || lane < 0 || lane >= lanes || n < 1 || n > 8) {
        throw Error("a lane of a feed needs lane < lanes <= 64 and 1 to 8 prefixes");
    }
    std::vector<std::string> prefixes;
    for (size_t i = 0; i < n; ++i) {
        prefixes.push_back(req.get_param_value("prefix", i));
    }
    const auto next = [this, lane, lanes, host, prefixes, version = disk_.newest_version(),
                       begun = false](size_t, httplib::DataSink & sink) mutable {
        const auto found = begun ? disk_.follow(prefixes, version, kSignOfLife) : std::nullopt;
        begun            = true;
        Slice slice;
        Bytes value, out;
        if (found) {
            const auto & [key, entry] = *found;
            version                   = entry.version;
            const auto [offset, size] = slice_of(entry.size, lane, lanes);
            if (size == 0 || entry.size > kMaxFeedValue || is_of(key, host)) {
                return true;
            }
            auto part = disk_.read(key, entry.version, offset, size);
            if (!part) {
                return true;  // removed just now
            }
            value = std::move(*part);
            slice = {key, entry.size, offset, value};
            while (limits_.allow(host, size) == HostLimits::Answer::too_fast && !disk_.is_stopping()
            ) {
                std::this_thread::sleep_for(100ms);
            }
            status_.count(host, 0, size, false);
        }
        append_slice(out, slice);
        return sink.write(reinterpret_cast<const char *>(out.data()), out.size()) &&
               !disk_.is_stopping();
    };
    res.set_chunked_content_provider("application/octet-stream", next);
}

}  // namespace gt
