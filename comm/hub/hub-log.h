// comm/hub/hub-log.h — the hub's log file, and the last faults for its status page.
#pragma once

#include "ggml-train/base/base.h"

#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace gt {

// One line per event, with its time. A full file is renamed to hub.log.1. Thread-safe.
class HubLog {
public:
    HubLog(const std::string & folder, bool quiet);
    ~HubLog();
    HubLog(const HubLog &)             = delete;
    HubLog & operator=(const HubLog &) = delete;

    struct LogEntry {
        uint64_t    time_ms;
        std::string text;
    };

    void                  note(const std::string & text);
    void                  fault(const std::string & text);  // also shown on the status page
    std::vector<LogEntry> faults() const;

private:
    mutable std::mutex   mutex_;
    std::string          path_;
    bool                 quiet_;
    FILE *               file_  = nullptr;
    size_t               bytes_ = 0;
    std::deque<LogEntry> faults_;
};

// Wall clock, milliseconds since 1970.
uint64_t wall_ms();

}  // namespace gt
