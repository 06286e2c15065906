// tools/train/session.h — this host's part in a run with other hosts: its name, the meeting place, the
// model and the settings that all hosts share. Works the same without other hosts.
// Read next: comm/meet.h.
#pragma once

#include "comm/meet.h"
#include "models/model-file.h"
#include "optim/optim.h"
#include "tools/cli/flags.h"

#include <algorithm>
#include <mutex>
#include <set>

namespace gt {

struct NodesFlags {
    std::string nodes, join, name, hub_path, tcp = "bbr";
    int64_t     up_limit         = 0;
    double      day_cap          = 0.0;
    int         min_hosts        = 1;
    uint64_t    checkpoint_every = 0;

    template <class Visit>
    void visit(Visit && visit) {
        visit("nodes", nodes, "hosts.txt: train together with the machines listed in it");
        visit(
            "join", join,
            "an invitation from hub --invite, its file, or - for standard input; instead of --nodes"
        );
        visit("name", name, "this machine's name in hosts.txt; default: its host name");
        visit("up-limit", up_limit, "upload limit in bytes per second; 0: no limit", {}, 0);
        visit(
            "day-cap", day_cap,
            "GB that this host may send per day, by the choice of --fragments; 0: any", {}, 0
        );
        visit("tcp", tcp, "TCP congestion control");
        visit(
            "min-hosts", min_hosts, "number of hosts that the run waits for at its start", {}, 1,
            1e6
        );
        visit(
            "checkpoint-every", checkpoint_every,
            "rounds between shared checkpoints; 0: by their size", {}, 0
        );
        visit("hub-path", hub_path, "folder of the hub, if it runs here; default: hub-store");
    }

    bool alone() const { return nodes.empty() && join.empty(); }

    // Bytes per second that this host may send; 0: any.
    double up_rate() const {
        const double cap = day_cap * 1e9 / 86400.0, limit = static_cast<double>(up_limit);
        return cap > 0.0 && limit > 0.0 ? std::min(cap, limit) : std::max(cap, limit);
    }
};

struct RunModel {
    ModelFile file;
    bool fresh = true;  // the file has the run's initial weights; else they come from other hosts
};

// Lines from other hosts and the meeting place, from any thread: to stdout, or to a sink.
class SessionLog {
public:
    void to(std::function<void(const std::string &)> sink);  // null: stdout
    void line(const std::string & text);

private:
    std::mutex                               mutex_;
    std::function<void(const std::string &)> sink_;
};

class Session {
public:
    // Connects to the meeting place, if the flags name one.
    explicit Session(const NodesFlags & flags);
    ~Session();

    bool                alone() const { return !meeting_; }
    const std::string & host() const { return host_; }
    const HostEntry *   entry() const { return hosts_.find(host_); }  // in hosts.txt; null: none
    // That the run is meant for, as far as is known.
    size_t n_hosts() const {
        return std::max<size_t>(static_cast<size_t>(flags_.min_hosts), hosts_.hosts.size());
    }
    bool is_first() const { return alone() || entry() == hosts_.hosts.data(); }

    // The model of the run: the file at `path`, or without it the description that another host has
    // stored, without weights. With `lora` its adapter, for which the file is needed.
    RunModel model(const std::string & path, const LoraConfig & lora = {});

    // Stores the model's description for hosts without the file. Returns false if another host has
    // described the pictures (classes, normalisation) differently; the model then has that description.
    bool offer(ModelFile & model);

    // The settings of the run: those of the first host. `run`: our flags of the run; `given` tells which
    // ones are on the command line, where a contradiction is an Error.
    Flags::Values agree(const Flags & given, const Flags::Values & run, const RunModel & model);

    // Peers for these settings; to be called once.
    Peers & peers(const OptimOptions & optim, const std::vector<ParamView> & params);

    // Traffic of this machine with the hosts that are there now, in one line: estimated. compute_s: duration
    // of a gradient on this machine.
    std::string cost(const OptimOptions & optim, const ModelConfig & config, double compute_s);

    // What this machine has sent and received: our rounds, or those of all hosts if the hub is here.
    HubTraffic traffic(const RoundInfo & info) const;

    SessionLog & log() { return log_; }

    // While we wait for the run to begin: told which hosts are missing, whenever that changes.
    void on_missing(std::function<void(const std::string &)> sink) { missing_ = std::move(sink); }

    // After the last step: serves the other hosts until they are done, if they depend on us.
    void finish();

private:
    void        check_link();
    void        look_for_hosts();
    std::string missing_hosts();

    std::set<std::string> present_hosts();

    SessionLog               log_;
    NodesFlags               flags_;
    Hosts                    hosts_;
    std::string              host_;
    std::unique_ptr<Meeting> meeting_;
    std::unique_ptr<Peers>   peers_;

    std::function<void(const std::string &)> missing_;
    std::string                              missing_text_;  // told last
    std::chrono::steady_clock::time_point    looked_{};      // for hosts
};

// A model without weights, from the description that a host has stored.
ModelFile described_model(const Bytes & description);

// Nothing unless each host averages a share of the messages (comm/rounds/butterfly.h).
std::optional<ShardCodec>
shard_codec(const OptimOptions & optim, const std::vector<ParamView> & params);

}  // namespace gt
