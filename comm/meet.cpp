// comm/meet.cpp — opens the place that hosts.txt names, and starts the hub or sequencer if it is ours.
#include "comm/meet.h"

#include "comm/hub/hub-sequencer.h"
#include "comm/hub/port-map.h"
#include "comm/rounds/store-direct.h"
#include "comm/run/link-check.h"
#include "comm/sequencer/sequencer-thread.h"
#include "comm/store/store-kinds.h"

#include <filesystem>

namespace gt {

namespace {

constexpr size_t kCheckBytes = 4 << 20;  // to measure a link with, in each direction
constexpr Millis kCheckGiveUp{3'000};
constexpr Millis kProbe{1'000};
constexpr int    kPresencePolls = 33;  // of a sequencer between two listings: 10 s in a bucket
constexpr Millis kLeavePoll{200};
constexpr Millis kStoreLeavePoll{1'000};  // of a store that may charge for requests
constexpr Millis kLastCommit{500};        // the last checkpoint may still wait for its commit
constexpr Millis kPeerGiveUp{3'000};      // of a peer that does not answer
constexpr Millis kMaxFinish{30'000};      // at the end, for peers that still fetch from us

// Whether all members of the newest commit have left. `chain` keeps what was read.
bool have_all_left(Store & store, const RunKeys & keys, std::deque<ChainEntry> & chain) {
    const CommitLog log(store, keys);
    if (chain.empty() || !log.extend(chain)) {
        chain = log.load();
    }
    if (chain.empty()) {
        return true;
    }
    chain.erase(chain.begin(), chain.end() - 1);
    return log.have_left(chain.back().commit);
}

// A hub in this process, for hosts or for what peers fetch from us.
HubOptions hub_options(const HostEntry & us, const Hosts & hosts, const MeetOptions & options) {
    HubOptions own;
    own.address    = listen_address(us);
    own.path       = options.hub_path;
    own.keys       = hosts.keys;
    own.congestion = options.congestion;
    own.up_limit   = options.up_limit;
    own.quiet      = true;
    return own;
}

HttpStoreOptions client_options(
    const HostEntry &   server,
    const Hosts &       hosts,
    const std::string & name,
    const MeetOptions & options
) {
    HttpStoreOptions http;
    http.address       = server.address;
    http.keys          = &hosts.keys;
    http.host          = name;
    http.n_connections = connections_of(hosts.hosts.size());
    http.up_limit      = options.up_limit;
    http.congestion    = options.congestion;
    return http;
}

class StoreMeeting : public Meeting {
public:
    StoreMeeting(std::unique_ptr<Store> store, const RunKeys & keys)
        : own_(std::move(store)), store_(own_.get()), keys_(keys) {}

    explicit StoreMeeting(const HttpStoreOptions & http)
        : own_(make_http_store(http)), store_(own_.get()), keys_(*http.keys), http_(http) {
        http_->keys = &keys_;
    }

    // A hub in this process: its store is used directly.
    StoreMeeting(
        const HubOptions &                               options,
        const SequencerOptions &                         order,
        const std::string &                              reach,
        const std::function<void(const std::string &)> & say
    )
        : hooks_(std::make_unique<HubSequencer>(options.keys, order)), keys_(options.keys) {
        HubOptions own = options;
        own.hooks      = hooks_.get();
        hub_           = std::make_unique<Hub>(own);
        hooks_->report_to(*hub_);
        store_ = &hub_->store();
        if (say && is_public_address(reach)) {
            port_map_ = std::make_unique<PortMap>(hub_->port(), say);
        }
    }

    ~StoreMeeting() override {
        direct_.reset();  // before the stores that it uses
        thread_.reset();
        hub_.reset();  // before its hooks
    }

    void order(const SequencerOptions & order, Millis poll) {
        thread_ = std::make_unique<SequencerThread>(*store_, keys_, order, poll);
    }

    // Hosts with an address serve their own messages.
    void
    deliver_directly(const Hosts & hosts, const std::string & name, const MeetOptions & options) {
        const HostEntry * hub = hosts.hub();
        const HostEntry * us  = hosts.find(name);
        DirectOptions     direct;
        direct.name     = name;
        direct.keys     = keys_;
        direct.hub      = store_;
        direct.hub_host = hub->name;
        if (hub->name == name) {
            direct.own = store_;
        } else if (us && !us->address.empty()) {
            HubOptions own = hub_options(*us, hosts, options);
            own.path += "-" + name;
            own.read_only = true;
            served_       = std::make_unique<Hub>(own);
            direct.own    = &served_->store();
        }
        for (const HostEntry & peer : hosts.hosts) {
            if (!peer.address.empty() && peer.name != name && peer.name != hub->name) {
                HttpStoreOptions http   = client_options(peer, hosts, name, options);
                http.give_up            = kPeerGiveUp;
                direct.peers[peer.name] = make_http_store(http);
            }
        }
        direct_ = std::make_unique<DirectStore>(std::move(direct));
    }

    Store &         store() override { return direct_ ? static_cast<Store &>(*direct_) : *store_; }
    const RunKeys & keys() const override { return keys_; }

    std::string check(const std::string & name) override {
        if (hub_) {
            return "the hub is on this machine\n";
        }
        if (!http_) {
            return describe(check_store(*store_, RunPaths(keys_.run).check(name)));
        }
        HttpStoreOptions soon = *http_;
        soon.give_up          = kCheckGiveUp;
        soon.feed             = false;
        return describe(check_link(soon, kCheckBytes));
    }

    std::optional<HubTraffic> hub_traffic() const override {
        return hub_ ? std::optional(hub_->traffic()) : std::nullopt;
    }

    void finish(Millis timeout) override {
        try {
            const Time give_up = std::chrono::steady_clock::now() + std::min(timeout, kMaxFinish);
            while (served_ && !direct_->have_others_left() &&
                   std::chrono::steady_clock::now() < give_up) {
                std::this_thread::sleep_for(kLeavePoll);
            }
        } catch (const StoreError &) {
            return;  // the hub is gone, and so are all others
        }
        const Time             give_up = std::chrono::steady_clock::now() + timeout;
        std::deque<ChainEntry> chain;
        while ((hub_ || (thread_ && thread_->leads())) && std::chrono::steady_clock::now() < give_up
        ) {
            try {
                if (have_all_left(*store_, keys_, chain)) {
                    std::this_thread::sleep_for(kLastCommit);
                    return;
                }
            } catch (const StoreError &) {
                // retry
            }
            std::this_thread::sleep_for(hub_ ? kLeavePoll : kStoreLeavePoll);
        }
    }

private:
    std::unique_ptr<HubSequencer>    hooks_;
    std::unique_ptr<Hub>             hub_;
    std::unique_ptr<PortMap>         port_map_;
    std::unique_ptr<Store>           own_;
    Store *                          store_ = nullptr;
    RunKeys                          keys_;
    std::optional<HttpStoreOptions>  http_;  // of another's hub
    std::unique_ptr<SequencerThread> thread_;
    std::unique_ptr<Hub>             served_;  // our own messages, for peers
    std::unique_ptr<DirectStore>     direct_;  // null: all messages go through the hub
};

// Without a hub, the hosts elect one of them as the sequencer.
std::unique_ptr<StoreMeeting> meet_at_store(
    const StoreKind &   kind,
    const Hosts &       hosts,
    const std::string & name,
    const MeetOptions & options
) {
    auto store = kind.open({hosts.store, hosts.keys.run, options.up_limit, options.congestion});
    if (options.observe) {
        return std::make_unique<StoreMeeting>(std::move(store), hosts.keys);
    }
    if (!probe_atomic_create(*store, RunPaths(hosts.keys.run).probe())) {
        throw Error(
            hosts.store +
            " can't create a value only if it is absent (a bucket: If-None-Match), so two hosts "
            "could close one round differently; use a hub, a local folder, or a bucket of AWS, R2, "
            "MinIO, Ceph or SeaweedFS"
        );
    }
    SequencerOptions order;
    order.name          = name;
    order.membership    = options.membership;
    order.elected       = true;
    order.on_refusal    = options.log;
    order.presence_poll = kPresencePolls * kind.poll;
    order.early         = kind.early;
    auto meeting        = std::make_unique<StoreMeeting>(std::move(store), hosts.keys);
    meeting->order(order, kind.poll);
    return meeting;
}

}  // namespace

// Whether a hub with our key answers.
static bool is_served(HttpStoreOptions http) {
    http.give_up = kProbe;
    http.feed    = false;
    try {
        (void) make_http_store(http)->get(RunPaths(http.keys->run).settings());
        return true;
    } catch (const StoreError &) {
        return false;
    }
}

// The run's hub is this machine.
static std::unique_ptr<StoreMeeting> meet_at_own_hub(
    const HostEntry & us, const Hosts & hosts, const MeetOptions & options, HttpStoreOptions http
) {
    SequencerOptions order;
    order.membership = options.membership;
    order.direct     = hosts.direct;
    try {
        return std::make_unique<StoreMeeting>(
            hub_options(us, hosts, options), order, us.address, options.log
        );
    } catch (const Error &) {
        // the program `hub` may run here already: then we are one of its hosts
        http.address = "127.0.0.1" + port_of(us);
        if (!is_served(http)) {
            throw;
        }
        return std::make_unique<StoreMeeting>(http);
    }
}

// At a store or a hub; messages pass through it.
static std::unique_ptr<StoreMeeting>
meet_star(const Hosts & hosts, const std::string & name, const MeetOptions & options) {
    if (!hosts.keys.can_read && !options.only_records) {
        throw Error("this hosts.txt is for a hub only (hub-key); a host needs the one with `key`");
    }
    if (const StoreKind * kind = find_store_kind(hosts.store)) {
        return meet_at_store(*kind, hosts, name, options);
    }
    const HostEntry * hub = hosts.hub();
    if (!hub) {
        throw Error(
            "hosts.txt names no place to meet: give one machine an address, or add a line " +
            store_examples()
        );
    }
    HttpStoreOptions http = client_options(*hub, hosts, name, options);
    http.feed             = !options.observe;
    http.stop             = options.stop;
    if (options.log) {
        http.on_trouble = [log = options.log, hub = hub->address](const std::string & what) {
            log(one_line("the hub " + hub + " " + what));
        };
    }
    return hub->name == name && !options.observe ? meet_at_own_hub(*hub, hosts, options, http)
                                                 : std::make_unique<StoreMeeting>(http);
}

std::unique_ptr<Meeting>
meet(const Hosts & given, const std::string & name, const MeetOptions & options) {
    if (const std::string problem = host_name_problem(name); !problem.empty()) {
        throw Error("--name: " + problem);
    }
    Hosts                     hosts = given;
    std::unique_ptr<NameLock> name_lock;
    if (!options.observe) {
        const std::string path = default_host_key_path();
        hosts.keys.host_seed   = load_host_key(path);
        name_lock              = std::make_unique<NameLock>(
            std::filesystem::path(path).parent_path(), hosts.keys.run, name
        );
        hosts.keys.process = name_lock->process();
    }
    auto meeting = meet_star(hosts, name, options);
    if (hosts.direct) {
        meeting->deliver_directly(hosts, name, options);
    }
    meeting->name_lock = std::move(name_lock);
    return meeting;
}

std::unique_ptr<Peers> make_peers(Meeting & meeting, const StorePeersOptions & options) {
    return std::make_unique<StorePeers>(meeting.store(), meeting.keys(), options);
}

}  // namespace gt
