// comm/hub-status.h — what the hub knows about its hosts, as one page for people and JSON for it.
//
// Hosts put lines like "step=12 loss=3.41 wait=0.02" under keys metrics/HOST/...; the hub does not
// keep them as values but appends them to one file for the whole run (=hub/metrics.txt: time in
// ms, host, the line) and to the curves. Bounded: curves are thinned, files begin anew.
#pragma once

#include "comm/hub-guard.h"

namespace gt {

class HubStatus {
public:
    HubStatus(const std::string & folder, HubLog & log);

    // False if the line is not of the form above (at most 32 names, finite numbers).
    bool add_metrics(const std::string & host, const std::string & line);
    void count(const std::string & host, uint64_t bytes_up, uint64_t bytes_down, bool refused);

    struct Store {
        uint64_t n_keys, bytes;
    };
    std::string json(const Store & store) const;
    std::string metrics_file() const { return path_; }

private:
    struct Host {
        uint64_t                                 seen_ms = 0, up = 0, down = 0;
        uint64_t                                 n_requests = 0, n_refused = 0;
        std::map<std::string, double>            latest;
        std::vector<std::pair<uint64_t, double>> curve;  // step, loss
        uint64_t                                 every = 1, n_seen = 0;
    };
    bool enter(const std::string & host, const std::string & line, uint64_t time_ms);
    void load();

    mutable std::mutex          mutex_;
    std::string                 path_;
    HubLog &                    log_;
    size_t                      bytes_ = 0;
    uint64_t                    started_ms_;
    std::map<std::string, Host> hosts_;
};

// The page itself: one file, no outside resources; it asks for status.json.
extern const char * const kStatusPage;

}  // namespace gt
