// comm/hub/hub-status.cpp — see hub-status.h.
#include "comm/hub/hub-status.h"

#include "comm/wire/frame.h"
#include "ggml-train/base/text.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gt {

static constexpr size_t kMetricsBytes = 16 << 20;
static constexpr size_t kStepsKept    = 100;     // the time left is extrapolated from these
static constexpr double kLate_ms      = 10'000;  // and two steps: then a host is late
static constexpr double kGone_ms      = 60'000;  // and four: gone
static constexpr size_t kMaxNames     = 32;      // of a line
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
    if (values.contains("step") && values["step"] >= 0) {
        const auto step = uint64_t(values["step"]);
        note_step(step, time_ms);
        if (values.contains("loss")) {
            h.curve.add(step, values["loss"]);
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

HubTraffic HubStatus::traffic() const {
    std::lock_guard<std::mutex> lock(mutex_);
    HubTraffic                  all;
    for (const auto & [name, host] : hosts_) {
        all.sent += host.down;
        all.received += host.up;
    }
    return all;
}

void HubStatus::note_step(uint64_t step, uint64_t time_ms) {
    if (!steps_.empty() && step <= steps_.back().first) {
        return;
    }
    steps_.emplace_back(step, time_ms);
    if (steps_.size() > kStepsKept) {
        steps_.pop_front();
    }
}

double HubStatus::step_ms() const {
    if (steps_.size() < 2) {
        return 0.0;
    }
    const auto & [step, from] = steps_.front();
    const auto & [last, to]   = steps_.back();
    return double(to - from) / double(last - step);
}

double HubStatus::seconds_left(uint64_t steps, uint64_t now) const {
    if (steps_.size() < 2 || steps <= steps_.back().first) {
        return -1.0;
    }
    const auto & [last, at] = steps_.back();
    const bool is_going     = double(now) < double(at) + kGone_ms + 4.0 * step_ms();
    return is_going ? 1e-3 * step_ms() * double(steps - last) : -1.0;
}

Json HubStatus::json_of(const std::string & name, const Host & host, uint64_t now) const {
    const double silent = double(now - std::min(now, host.seen_ms));
    const auto   latest = [&](const char * field) {
        const auto it = host.latest.find(field);
        return it == host.latest.end() ? 0.0 : it->second;
    };
    Json json = Json::object();
    json.set("name", name)
        .set("us", false)
        .set(
            "state", silent > kGone_ms + 4.0 * step_ms()   ? "gone"
                     : silent > kLate_ms + 2.0 * step_ms() ? "late"
                                                           : "training"
        )
        .set("age", 1e-3 * silent)
        .set("step", uint64_t(latest("step")))
        .set("samples", uint64_t(latest("samples")))
        .set("units_s", latest("tokens_s"))
        .set("up", std::max(host.up, uint64_t(latest("up_bytes"))))
        .set("down", std::max(host.down, uint64_t(latest("down_bytes"))))
        .set("requests", host.n_requests)
        .set("refused", host.n_refused)
        .set("curve", host.curve.json());
    if (latest("loss") > 0.0) {
        json.set("loss", latest("loss"));
    }
    return json;
}

std::string HubStatus::json(const Facts & facts) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t              now   = wall_ms();
    Json                        hosts = Json::array(), faults = Json::array();
    for (const auto & [name, host] : hosts_) {
        if (!host.latest.empty()) {
            hosts.push(json_of(name, host, now));
        }
    }
    for (const HubLog::LogEntry & fault : log_.faults()) {
        const double age = 1e-3 * double(now - std::min(now, fault.time_ms));
        faults.push(Json::object().set("age", age).set("text", fault.text));
    }
    // steps are counted from 0 in messages
    const uint64_t step = steps_.empty() ? 0 : steps_.back().first + 1;
    const bool     over = facts.steps > 0 && step >= facts.steps;
    return Json::object()
        .set("run", "hub")
        .set(
            "model", format(
                         "version %s, up for %s, %llu values, ", kVersion,
                         time_text(1e-3 * double(now - started_ms_)).c_str(),
                         (unsigned long long) facts.n_keys
                     ) + bytes_text(facts.bytes)
        )
        .set(
            "state", steps_.empty() ? "waiting"
                     : over         ? "finished"
                                    : "running"
        )
        .set("text", "waiting for the first step")
        .set("step", step)
        .set("steps", facts.steps)
        .set("seconds_left", seconds_left(facts.steps, now))
        .set("hosts", hosts)
        .set("faults", faults)
        .text();
}

}  // namespace gt
