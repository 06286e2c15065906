// comm/hub-status.cpp — collects metrics lines and writes status.json.
#include "comm/hub-status.h"

#include "comm/frame.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gt {

static constexpr size_t kMetricsBytes = 16 << 20;
static constexpr size_t kMaxPoints    = 512;
static constexpr size_t kMaxHosts     = 256;

HubStatus::HubStatus(const std::string & folder, HubLog & log)
    : path_(folder + "/metrics.txt"), log_(log), started_ms_(wall_ms()) {
    load();
}

// After a restart the curves go on where they were.
void HubStatus::load() {
    for (const std::string & path : {path_ + ".1", path_}) {
        std::ifstream in(path);
        std::string   line;
        bytes_ = 0;
        while (std::getline(in, line)) {
            bytes_ += line.size() + 1;
            std::istringstream words(line);
            uint64_t           time_ms = 0;
            std::string        host, rest;
            if (words >> time_ms >> host && std::getline(words, rest) && valid_host_name(host)) {
                enter(host, rest, time_ms);
            }
        }
    }
}

bool HubStatus::enter(const std::string & host, const std::string & line, uint64_t time_ms) {
    std::map<std::string, double> values;
    std::istringstream            words(line);
    std::string                   word;
    while (words >> word) {
        const size_t      equal = word.find('=');
        const std::string name  = word.substr(0, equal);
        if (equal == word.npos || name.empty() || name.size() > 24 || values.size() == 32 ||
            name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != name.npos) {
            return false;
        }
        char *       end   = nullptr;
        const double value = std::strtod(word.c_str() + equal + 1, &end);
        if (end == word.c_str() + equal + 1 || *end != '\0' || !std::isfinite(value)) {
            return false;
        }
        values[name] = value;
    }
    if (values.empty() || (hosts_.size() >= kMaxHosts && !hosts_.contains(host))) {
        return false;
    }
    Host & h  = hosts_[host];
    h.seen_ms = std::max(h.seen_ms, time_ms);
    if (values.contains("loss") && values.contains("step") && values["step"] >= 0 &&
        h.n_seen++ % h.every == 0) {
        h.curve.emplace_back(uint64_t(values["step"]), values["loss"]);
        if (h.curve.size() == kMaxPoints) {  // keep every second, and from now on take fewer
            for (size_t i = 0; i < kMaxPoints / 2; i++) {
                h.curve[i] = h.curve[2 * i];
            }
            h.curve.resize(kMaxPoints / 2);
            h.every *= 2;
        }
    }
    h.latest = std::move(values);
    return true;
}

bool HubStatus::add_metrics(const std::string & host, const std::string & line) {
    if (line.size() > 1024 || line.find('\n') != line.npos) {
        return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t              now = wall_ms();
    if (!enter(host, line, now)) {
        return false;
    }
    std::ofstream out(path_, std::ios::app);
    out << now << ' ' << host << ' ' << line << '\n';
    bytes_ += line.size() + host.size() + 16;
    if (bytes_ > kMetricsBytes) {
        out.close();
        std::error_code failed;
        std::filesystem::rename(path_, path_ + ".1", failed);
        bytes_ = 0;
    }
    return true;
}

void HubStatus::count(
    const std::string & host, uint64_t bytes_up, uint64_t bytes_down, bool refused
) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (hosts_.size() >= kMaxHosts && !hosts_.contains(host)) {
        return;
    }
    Host & h  = hosts_[host];
    h.seen_ms = wall_ms();
    h.up += bytes_up;
    h.down += bytes_down;
    h.n_requests++;
    h.n_refused += refused ? 1 : 0;
}

static std::string quoted(const std::string & text) {
    std::string out = "\"";
    for (const unsigned char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += char(c);
        } else if (c < 32 || c > 126 || c == '<') {
            out += format("\\u%04x", unsigned(c));
        } else {
            out += char(c);
        }
    }
    return out + "\"";
}

static std::string number(double value) {
    return format("%.9g", value);
}

std::string HubStatus::json(const Store & store) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto                  whole = [](uint64_t n) { return std::to_string(n); };
    std::string out = "{\"version\":" + quoted(kVersion) + ",\"now\":" + whole(wall_ms()) +
                      ",\"started\":" + whole(started_ms_) + ",\"keys\":" + whole(store.n_keys) +
                      ",\"bytes\":" + whole(store.bytes) + ",\"hosts\":[";
    const char * comma = "";
    for (const auto & [name, host] : hosts_) {
        out += comma;
        out += "{\"name\":" + quoted(name) + ",\"seen\":" + whole(host.seen_ms) +
               ",\"up\":" + whole(host.up) + ",\"down\":" + whole(host.down) +
               ",\"requests\":" + whole(host.n_requests) + ",\"refused\":" + whole(host.n_refused) +
               ",\"values\":{";
        const char * inner = "";
        for (const auto & [key, value] : host.latest) {
            out += inner + quoted(key) + ":" + number(value);
            inner = ",";
        }
        out += "},\"curve\":[";
        inner = "";
        for (const auto & [step, loss] : host.curve) {
            out += inner + ("[" + whole(step) + "," + number(loss) + "]");
            inner = ",";
        }
        out += "]}";
        comma = ",";
    }
    out += "],\"faults\":[";
    comma = "";
    for (const HubLog::Fault & fault : log_.faults()) {
        out += comma + ("{\"t\":" + whole(fault.time_ms) + ",\"text\":" + quoted(fault.text) + "}");
        comma = ",";
    }
    return out + "]}";
}

}  // namespace gt
