// comm/hub/hub-log.cpp — see hub-log.h.
#include "comm/hub/hub-log.h"

#include "comm/store/store.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>

namespace gt {

static constexpr size_t   kLogBytes  = 8 << 20;
static constexpr size_t   kMaxFaults = 64;
static constexpr uint64_t kRepeatMs  = 10'000;  // a repeated fault is logged once in this time

uint64_t wall_ms() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return uint64_t(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

HubLog::HubLog(const std::string & folder, bool quiet)
    : path_(folder + "/hub.log"), quiet_(quiet), file_(std::fopen(path_.c_str(), "ae")) {
    if (!file_) {
        throw Error(path_ + ": can't be written; check the folder and its permissions");
    }
    std::error_code failed;
    bytes_ = std::filesystem::file_size(path_, failed);
}

HubLog::~HubLog() {
    if (file_) {
        std::fclose(file_);
    }
}

void HubLog::note(const std::string & raw) {
    const std::string           text = one_line(raw);  // keys of requests may be in it
    std::lock_guard<std::mutex> lock(mutex_);
    const std::time_t           now = std::time(nullptr);
    std::tm                     utc{};
    ::gmtime_r(&now, &utc);
    char time[32];
    std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    bool is_written = false;
    if (file_) {
        const int n = std::fprintf(file_, "%s %s\n", time, text.c_str());
        is_written  = std::fflush(file_) == 0;
        bytes_ += size_t(std::max(n, 0));
    }
    if (!quiet_ || !is_written) {  // a full disk must not hide that it is full
        std::fprintf(stderr, "hub %s %s\n", time, text.c_str());
    }
    if (file_ && bytes_ > kLogBytes) {
        std::fclose(file_);
        std::rename(path_.c_str(), (path_ + ".1").c_str());
        file_  = std::fopen(path_.c_str(), "ae");  // may fail: the hub then logs to stderr
        bytes_ = 0;
    }
}

void HubLog::fault(const std::string & text) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const uint64_t              now = wall_ms();
        if (!faults_.empty() && faults_.back().text == text &&
            now - faults_.back().time_ms < kRepeatMs) {
            return;
        }
        faults_.push_back({now, text});
        if (faults_.size() > kMaxFaults) {
            faults_.pop_front();
        }
    }
    note(text);
}

std::vector<HubLog::LogEntry> HubLog::faults() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return {faults_.begin(), faults_.end()};
}

}  // namespace gt
