// tools/together.h — a run with other hosts, as its tool sees it: who we are, where we meet, what all
// have agreed on. Alone it is the same with nobody there. Read next: comm/comm.h.
#pragma once

#include "comm/comm.h"
#include "ggml-train/model-file.h"
#include "optim/optim.h"
#include "tools/flags.h"

namespace gt {

struct NodesFlags {
    std::string nodes, join, name, hub_path, tcp = "bbr";
    int64_t     up_limit = 0;
    int         status = -1, min_hosts = 1;
    uint64_t    checkpoint_every = 100;
    bool        take_over        = false;

    template <class Visit>
    void visit(Visit && visit) {
        visit("nodes", nodes, "hosts.txt: train together with the machines in it");
        visit("join", join, "the same as one pasted line (hub --invite prints it)");
        visit("name", name, "this machine's name in hosts.txt; default: its host name");
        visit("up-limit", up_limit, "bytes per second to send at most; 0: no limit");
        visit("tcp", tcp, "congestion control to ask the kernel for");
        visit("min-hosts", min_hosts, "the run begins with so many hosts");
        visit("checkpoint-every", checkpoint_every, "rounds between shared checkpoints");
        visit("status", status, "if the hub is here: port of its page on 127.0.0.1; -1: none");
        visit("hub-path", hub_path, "if the hub is here: its folder; default: hub-store");
        visit(
            "take-over", take_over, "this host orders rounds from now on (its predecessor is gone)"
        );
    }

    bool alone() const { return nodes.empty() && join.empty(); }
};

class Together {
public:
    // Alone, or at the meeting point.
    explicit Together(const NodesFlags & flags);
    ~Together();

    bool                alone() const { return !meeting_; }
    const std::string & host() const { return host_; }
    const HostLine * line() const { return hosts_.find(host_); }  // of hosts.txt; null: not in it

    // The model of the run: `path` if that file is there, else the description that another host
    // has put into the store, without weights: `fresh` is false then.
    ModelFile model(const std::string & path, bool & fresh);

    // Puts the model's description into the store for hosts without the file. False: another host
    // has described pictures (classes, normalisation) in another way; the model now has its words.
    bool offer(ModelFile & model);

    // The run's settings, which are ours if we are the first: sets the flags accordingly. `run`: the
    // flags that all hosts must share, among those of `flags`.
    void agree(Flags & flags, const Flags::Values & run, const ModelFile & model, bool fresh);

    // Peers for these settings; once.
    RunPeers & peers(const OptimOptions & optim, const std::vector<ParamView> & params);

    // What the run costs a day, in one line. compute_s: of a step on this machine.
    std::string
    cost(const OptimOptions & optim, const ModelConfig & config, double compute_s) const;

    // After the last step: the others may still need what we have.
    void finish();

private:
    void check_line();

    NodesFlags                flags_;
    Hosts                     hosts_;
    std::string               host_;
    std::unique_ptr<Meeting>  meeting_;
    std::unique_ptr<RunPeers> peers_;
};

// What another host has put into the store for those without the file: a model without weights.
ModelFile described_model(const Bytes & description);

// Set for the replicators that send everything: hosts average a share each (comm/butterfly.h).
std::optional<DenseCodec>
dense_codec(const OptimOptions & optim, const std::vector<ParamView> & params);

}  // namespace gt
