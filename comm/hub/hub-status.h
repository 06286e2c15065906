// comm/hub/hub-status.h — what the hub knows about its hosts: the data of its status page (comm/status/page.h).
//
// The sequencer adds a line such as "step=12 loss=3.41 waited_s=0.02" per message (add_metrics). Lines
// are appended to =hub/metrics.txt (time in ms, host, line) and to the loss curves. Bounded: curves
// are thinned out, a full file is renamed to metrics.txt.1.
#pragma once

#include "comm/hub/hub-log.h"
#include "comm/hub/hub.h"
#include "ggml-train/base/curve.h"

#include <deque>
#include <map>

namespace gt {

class HubStatus {
public:
    HubStatus(const std::string & folder, HubLog & log);

    // False if the line is not name=number name=number ... (at most 32 names, finite numbers).
    bool add_metrics(const std::string & host, const std::string & line);
    void count(const std::string & host, uint64_t bytes_up, uint64_t bytes_down, bool refused);

    HubTraffic traffic() const;

    // steps: of the whole run; 0: unknown.
    struct Facts {
        uint64_t n_keys, bytes, steps;
    };
    std::string json(const Facts & facts) const;
    std::string metrics_file() const { return path_; }

private:
    struct Host {
        uint64_t                      seen_ms = 0, up = 0, down = 0;
        uint64_t                      n_requests = 0, n_refused = 0;
        std::map<std::string, double> latest;
        Curve                         curve;  // of the loss
    };
    bool   add(const std::string & host, const std::string & line, uint64_t time_ms);
    void   load();
    void   note_step(uint64_t step, uint64_t time_ms);
    double step_ms() const;                                   // 0: unknown
    double seconds_left(uint64_t steps, uint64_t now) const;  // < 0: unknown
    Json   json_of(const std::string & name, const Host & host, uint64_t now) const;

    mutable std::mutex          mutex_;
    std::string                 path_;
    HubLog &                    log_;
    size_t                      bytes_ = 0;
    uint64_t                    started_ms_;
    std::map<std::string, Host> hosts_;

    std::deque<std::pair<uint64_t, uint64_t>> steps_;  // step, time in ms: of the last ones
};

}  // namespace gt
