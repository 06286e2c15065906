// comm/hub/hub-status.cpp — see hub-status.h.
#include "comm/hub/hub-status.h"

#include "comm/wire/frame.h"
#include "ggml-train/base/json.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gt {

static constexpr size_t kMetricsBytes = 16 << 20;
static constexpr size_t kMaxPoints    = 512;  // of a curve
static constexpr size_t kMaxNames     = 32;   // of a line
static constexpr size_t kMaxName      = 24;
static constexpr size_t kMaxLine      = 1024;

HubStatus::HubStatus(const std::string & folder, HubLog & log)
    : path_(folder + "/metrics.txt"), log_(log), started_ms_(wall_ms()) {
    load();
}

// Restores the curves after a restart.
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
                add(host, rest, time_ms);
            }
        }
    }
}

bool HubStatus::add(const std::string & host, const std::string & line, uint64_t time_ms) {
    std::map<std::string, double> values;
    std::istringstream            words(line);
    std::string                   word;
    while (words >> word) {
        const size_t      equal = word.find('=');
        const std::string name  = word.substr(0, equal);
        if (equal == word.npos || name.empty() || name.size() > kMaxName ||
            values.size() == kMaxNames ||
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
        if (h.curve.size() ==
            kMaxPoints) {  // keep every second point, and take half as many from now on
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
    if (line.size() > kMaxLine || line.find('\n') != line.npos) {
        return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t              now = wall_ms();
    if (!add(host, line, now)) {
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

static Json json_of(const std::map<std::string, double> & values) {
    Json out = Json::object();
    for (const auto & [name, value] : values) {
        out.set(name, value);
    }
    return out;
}

std::string HubStatus::json(const StoreSize & store) const {
    std::lock_guard<std::mutex> lock(mutex_);
    Json                        hosts = Json::array(), faults = Json::array();
    for (const auto & [name, host] : hosts_) {
        Json curve = Json::array();
        for (const auto & [step, loss] : host.curve) {
            curve.push(Json::array().push(step).push(loss));
        }
        hosts.push(Json::object()
                       .set("name", name)
                       .set("seen", host.seen_ms)
                       .set("up", host.up)
                       .set("down", host.down)
                       .set("requests", host.n_requests)
                       .set("refused", host.n_refused)
                       .set("values", json_of(host.latest))
                       .set("curve", curve));
    }
    for (const HubLog::LogEntry & fault : log_.faults()) {
        faults.push(Json::object().set("t", fault.time_ms).set("text", fault.text));
    }
    return Json::object()
        .set("version", kVersion)
        .set("now", wall_ms())
        .set("started", started_ms_)
        .set("keys", store.n_keys)
        .set("bytes", store.bytes)
        .set("hosts", hosts)
        .set("faults", faults)
        .text();
}

}  // namespace gt
