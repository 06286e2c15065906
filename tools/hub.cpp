// hub — runs the hub of a run on any small machine, and makes hosts.txt.
//
//   hub --new --address anna.example.org:7077      writes hosts.txt with a new key
//   hub --nodes hosts.txt                          runs the hub
//   hub --nodes hosts.txt --hub-file rented.txt    writes a file for a hub that can't read messages
//   hub --nodes hosts.txt --remove ben             removes a host from the run
//
// Read next: comm/hub/hub.cpp, comm/run/hosts.cpp.
#include "comm/hub/hub-sequencer.h"
#include "comm/hub/port-map.h"
#include "comm/meet.h"
#include "tools/cli/flags.h"
#include "tools/cli/host-name.h"
#include "tools/verbs.h"

#include <csignal>
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace gt;

namespace {

struct HubFlags {
    bool        make_new = false, invite = false, quiet = false;
    std::string nodes = "hosts.txt", address, store, name, hub_file, remove, listen,
                path = "hub-store", tcp = "bbr";
    uint64_t disk = 16'000'000'000, host_bytes_s = 200'000'000;
    int      status = -1, min_hosts = 1, quorum = 50;
    uint64_t checkpoint_every = 0;

    template <class Visit>
    void visit(Visit && visit) {
        visit("new", make_new, "write a new hosts.txt with a new key");
        visit("nodes,n", nodes, "hosts.txt: the file to write, or to read");
        visit("address", address, "with --new: host:port of this machine, as other hosts reach it");
        visit("store", store, "with --new: s3://bucket/prefix or file:///path instead of a hub");
        visit("name", name, "this machine's name in hosts.txt; default: its host name");
        visit("invite", invite, "print an invitation: one line for --join");
        visit("hub-file", hub_file, "write a file for a hub that can't read messages");
        visit("remove", remove, "name of a host to remove from the run, for good");
        visit(
            "listen", listen, "address:port to listen on; default: all addresses, the hub's port"
        );
        visit("path", path, "folder of the store");
        visit("disk", disk, "maximum size of the store in bytes");
        visit("host-limit", host_bytes_s, "maximum bytes per second, up and down, for one host");
        visit(
            "status", status, "port of the status page on 127.0.0.1; 0: any; -1: no page", {}, -1,
            65535
        );
        visit(
            "min-hosts", min_hosts, "number of hosts that a run waits for at its start", {}, 1, 1e6
        );
        visit("quorum", quorum, "percentage of the hosts that a round needs to close", {}, 1, 100);
        visit(
            "checkpoint-every", checkpoint_every,
            "rounds between shared checkpoints; 0: by their size", {}, 0
        );
        visit("tcp", tcp, "TCP congestion control");
        visit("quiet,q", quiet, "log only to the store's folder");
    }
};

// Writes a file that only its owner can read. An existing file is never replaced.
void write_secret(const std::string & path, const std::string & text) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ::write(fd, text.data(), text.size()) != ssize_t(text.size()) ||
        ::close(fd) != 0) {
        throw Error(path + ": can't be written; if it exists already, move it away first");
    }
}

void make_new(const HubFlags & flags) {
    if (flags.address.empty() && flags.store.empty()) {
        throw UsageError("--new needs --address HOST:PORT (or --store s3://bucket/prefix)");
    }
    const std::string name = own_host_name(flags.name);
    if (const std::string problem = host_name_problem(name); !problem.empty()) {
        throw UsageError("--name: " + problem);
    }
    Hosts hosts;
    hosts.key   = to_base64(new_secret());
    hosts.store = flags.store;
    hosts.hosts.push_back({.name = name, .address = flags.address});
    try {
        hosts = parse_hosts(hosts_text(hosts), "--new");  // checks what was given
    } catch (const Error & error) {
        const std::string what = error.what();  // --new:LINE: what is wrong
        throw UsageError(what.substr(what.find(": ") + 2));
    }
    write_secret(
        flags.nodes, "# One line per machine: NAME ADDRESS|- [up=MBIT] [down=MBIT] [data=PATH].\n"
                     "# This file contains the key of the run: keep it secret.\n" +
                         hosts_text(hosts)
    );
    std::printf("wrote %s\n", flags.nodes.c_str());
    std::printf("next: add a line per machine, and copy the file to each\n");
    if (flags.store.empty()) {
        std::printf(
            "train-gpt --nodes %s runs the hub here, too; without training:\n", flags.nodes.c_str()
        );
        std::printf("    ggml-train hub --nodes %s\n", flags.nodes.c_str());
    }
}

void write_hub_file(const HubFlags & flags, Hosts hosts) {
    hosts.hub_key = hub_form(hosts.keys);
    hosts.key.clear();
    write_secret(flags.hub_file, hosts_text(hosts));
    std::printf(
        "wrote %s: a hub with this file orders messages but can't read them\n",
        flags.hub_file.c_str()
    );
}

// At a hub, only on the machine that runs it.
void remove_host(const std::string & name, const Hosts & hosts) {
    MeetOptions options;
    options.observe      = true;
    options.only_records = true;
    const auto  meeting  = meet(hosts, "remove", options);
    const auto  chain    = CommitLog(meeting->store(), meeting->keys()).load();
    std::string known;
    for (const CommitHost & host :
         chain.empty() ? std::vector<CommitHost>() : chain.back().commit.hosts) {
        known += (known.empty() ? "" : ", ") + host.name;
    }
    if (chain.empty() || !chain.back().commit.find(name)) {
        throw Error(
            "the run has no host '" + name + "'; it has " + (known.empty() ? "none" : known)
        );
    }
    const PresenceKey removed{PresenceKey::Kind::removed, name, 0};
    meeting->store().put(
        RunPaths(hosts.keys.run).presence(removed),
        make_record(meeting->keys(), head_of(removed), {})
    );
    std::printf(
        "%s is removed with the next round: its messages do not count, and it stops\n", name.c_str()
    );
}

void run_hub(const HubFlags & flags, const Hosts & hosts) {
    if (!hosts.hub()) {
        throw Error(
            flags.nodes + ": this run uses a store instead of a hub; there is no hub to start"
        );
    }
    ::mallopt(M_ARENA_MAX, 4);  // many threads, little memory
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);
    std::signal(SIGPIPE, SIG_IGN);

    const std::string & reach = hosts.hub()->address;
    SequencerOptions    order;
    order.direct                      = hosts.direct;
    order.membership.min_hosts        = size_t(flags.min_hosts);
    order.membership.quorum           = flags.quorum / 100.0;
    order.membership.checkpoint_every = flags.checkpoint_every;
    HubSequencer sequencer(hosts.keys, order);

    HubOptions options;
    options.address         = flags.listen.empty() ? listen_address(*hosts.hub()) : flags.listen;
    options.path            = flags.path;
    options.keys            = hosts.keys;
    options.hooks           = &sequencer;
    options.max_total_bytes = flags.disk;
    options.host_bytes_s    = flags.host_bytes_s;
    options.status_port     = flags.status;
    options.congestion      = flags.tcp;
    options.quiet           = flags.quiet;
    Hub hub(options);
    sequencer.report_to(hub);
    std::optional<PortMap> port_map;
    if (flags.listen.empty() && is_public_address(reach)) {
        port_map.emplace(hub.port(), [](const std::string & text) {
            std::printf("%s\n", text.c_str());
            std::fflush(stdout);
        });
    }

    std::printf("listening on port %d; hosts connect to %s\n", hub.port(), reach.c_str());
    if (hub.status_port() > 0) {
        std::printf("status: http://127.0.0.1:%d/\n", hub.status_port());
    }
    std::fflush(stdout);
    int received = 0;
    sigwait(&stop, &received);
}

}  // namespace

int gt::hub_main(Flags & flags, int argc, char ** argv) {
    HubFlags my;
    my.visit(flags);
    flags.parse(argc, argv);
    if (my.make_new) {
        make_new(my);
        return 0;
    }
    Hosts hosts = read_hosts(my.nodes);
    if (my.invite) {
        std::printf("%s\n", make_invite(hosts).c_str());
        return 0;
    }
    if (!my.hub_file.empty()) {
        write_hub_file(my, hosts);
        return 0;
    }
    hosts.keys.host_seed = load_host_key(default_host_key_path());
    if (!my.remove.empty()) {
        remove_host(my.remove, hosts);
    } else {
        run_hub(my, hosts);
    }
    return 0;
}
