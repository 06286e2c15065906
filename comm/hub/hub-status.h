// comm/hub/hub-status.h — what the hub knows about its hosts: the data of its status page.
//
// The sequencer adds a line such as "step=12 loss=3.41 waited_s=0.02" per message (add_metrics). Lines
// are appended to =hub/metrics.txt (time in ms, host, line) and to the loss curves. Bounded: curves
// are thinned out, a full file is renamed to metrics.txt.1.
#pragma once

#include "comm/hub/hub-log.h"

#include <map>

namespace gt {

class HubStatus {
public:
    HubStatus(const std::string & folder, HubLog & log);

    // False if the line is not name=number name=number ... (at most 32 names, finite numbers).
    bool add_metrics(const std::string & host, const std::string & line);
    void count(const std::string & host, uint64_t bytes_up, uint64_t bytes_down, bool refused);

    struct StoreSize {
        uint64_t n_keys, bytes;
    };
    std::string json(const StoreSize & store) const;
    std::string metrics_file() const { return path_; }

private:
    struct Host {
        uint64_t                                 seen_ms = 0, up = 0, down = 0;
        uint64_t                                 n_requests = 0, n_refused = 0;
        std::map<std::string, double>            latest;
        std::vector<std::pair<uint64_t, double>> curve;  // step, loss
        uint64_t                                 every = 1, n_seen = 0;
    };
    bool add(const std::string & host, const std::string & line, uint64_t time_ms);
    void load();

    mutable std::mutex          mutex_;
    std::string                 path_;
    HubLog &                    log_;
    size_t                      bytes_ = 0;
    uint64_t                    started_ms_;
    std::map<std::string, Host> hosts_;
};

// hub-page.html: one file without external resources, which polls status.json.
extern const char * const kStatusPage;

}  // namespace gt
