// comm/comm.cpp — opens the meeting place that hosts.txt names, and starts what is ours to run.
#include "comm/comm.h"

#include "comm/hub-sequencer.h"
#include "comm/line-check.h"
#include "comm/meet-direct.h"
#include "comm/sequencer-thread.h"
#include "comm/store-cache.h"

namespace gt {

namespace {

constexpr size_t kCheckBytes = 4 << 20;   // to measure a line with, each way
constexpr size_t kCacheBytes = 64 << 20;  // messages that peers and sequencer both read

// All members of the newest commit have said goodbye.
bool have_all_left(Store & store, const RunKeys & keys) {
    const CommitLog log(store, keys);
    const auto      chain = log.load();
    if (chain.empty()) {
        return true;
    }
    const RunPaths paths(keys.run);
    for (const CommitHost & host : chain.back().commit.hosts) {
        if (host.member && !store.get(paths.leave(host.name, host.incarnation))) {
            return false;
        }
    }
    return true;
}

class StoreMeeting : public Meeting {
public:
    StoreMeeting(std::unique_ptr<Store> store, const RunKeys & keys)
        : own_(std::move(store)), store_(own_.get()), keys_(keys) {}

    explicit StoreMeeting(const HttpStoreOptions & http)
        : own_(make_http_store(http)), store_(own_.get()), keys_(*http.keys), http_(http) {
        http_->keys = &keys_;
    }

    // A hub in this process: its store is used without the network.
    StoreMeeting(const HubOptions & options, const SequencerOptions & order)
        : hooks_(std::make_unique<HubSequencer>(options.keys, order)), keys_(options.keys) {
        HubOptions own = options;
        own.hooks      = hooks_.get();
        hub_           = std::make_unique<Hub>(own);
        hooks_->report_to(*hub_);
        store_ = &hub_->store();
    }

    ~StoreMeeting() override {
        thread_.reset();
        hub_.reset();  // before its hooks
    }

    void order(const SequencerOptions & order, Millis poll) {
        thread_ = std::make_unique<SequencerThread>(*store_, keys_, order, poll);
    }

    Store &         store() override { return *store_; }
    const RunKeys & keys() const override { return keys_; }

    std::string check(const std::string & name) override {
        if (hub_) {
            return "the hub is on this machine\n";
        }
        if (!http_) {
            return describe(check_store(*store_, RunPaths(keys_.run).root + "check/" + name));
        }
        HttpStoreOptions soon = *http_;
        soon.give_up          = Millis(3000);  // who asks wants to know
        soon.feed             = false;
        return describe(check_line(soon, kCheckBytes));
    }

    void finish(Millis patience) override {
        const Time give_up = std::chrono::steady_clock::now() + patience;
        while ((hub_ || (thread_ && thread_->leads())) && std::chrono::steady_clock::now() < give_up
        ) {
            try {
                if (have_all_left(*store_, keys_)) {
                    // the last checkpoint may still wait for its commit
                    std::this_thread::sleep_for(Millis(500));
                    return;
                }
            } catch (const StoreError &) {
                // try again
            }
            std::this_thread::sleep_for(Millis(200));
        }
    }

private:
    std::unique_ptr<HubSequencer>    hooks_;
    std::unique_ptr<Hub>             hub_;
    std::unique_ptr<Store>           own_;
    Store *                          store_ = nullptr;
    RunKeys                          keys_;
    std::optional<HttpStoreOptions>  http_;  // of another's hub
    std::unique_ptr<SequencerThread> thread_;
};

// Without a hub the hosts order rounds themselves. Where the store has a working atomic create, any
// of them may; elsewhere the first host of the file, or whom a person appoints.
std::unique_ptr<Meeting> meet_at_store(
    std::unique_ptr<Store> store,
    Millis                 poll,
    const Hosts &          hosts,
    const std::string &    name,
    const MeetOptions &    options
) {
    if (options.observe) {
        return std::make_unique<StoreMeeting>(std::move(store), hosts.keys);
    }
    SequencerOptions order;
    order.name          = name;
    order.membership    = options.membership;
    order.atomic        = probe_atomic_create(*store, RunPaths(hosts.keys.run).root + "probe");
    order.elected       = order.atomic && !options.take_over;
    order.take_over     = options.take_over;
    order.on_refusal    = options.say;
    const bool is_first = !hosts.hosts.empty() && hosts.hosts.front().name == name;
    auto       meeting  = std::make_unique<StoreMeeting>(std::move(store), hosts.keys);
    if (order.elected || order.take_over || is_first) {
        meeting->order(order, poll);
    }
    return meeting;
}

}  // namespace

static std::unique_ptr<Meeting>
meet_star(const Hosts & hosts, const std::string & name, const MeetOptions & options) {
    if (!valid_host_name(name)) {
        throw Error(
            "'" + name + "' is no name for a machine; use letters, digits and ._- (--name)"
        );
    }
    if (!hosts.keys.can_read) {
        throw Error(
            "this hosts.txt is for a hub that must not read; a host needs the one with `key`"
        );
    }
    if (hosts.store.starts_with("file://")) {
        return meet_at_store(
            make_file_store(hosts.store.substr(7)), Millis(20), hosts, name, options
        );
    }
    if (hosts.store.starts_with("s3://")) {
        S3StoreOptions s3;
        s3.url        = hosts.store;
        s3.up_limit   = options.up_limit;
        s3.congestion = options.congestion;
        auto store    = make_cached_store(make_s3_store(s3), "/message/", kCacheBytes);
        return meet_at_store(std::move(store), Millis(300), hosts, name, options);
    }
    const HostLine * hub = hosts.hub();
    if (!hosts.store.empty() || !hub) {
        throw Error("hosts.txt names no place to meet: give one machine an address, or add a line "
                    "`store file:///path` or `store s3://bucket/prefix`");
    }
    if (hub->name == name && !options.observe) {
        HubOptions own;
        own.address     = "0.0.0.0" + hub->address.substr(hub->address.rfind(':'));
        own.path        = options.hub_path;
        own.keys        = hosts.keys;
        own.status_port = options.status_port;
        own.congestion  = options.congestion;
        own.quiet       = true;
        SequencerOptions order;
        order.membership = options.membership;
        order.direct     = hosts.direct;
        return std::make_unique<StoreMeeting>(own, order);
    }
    HttpStoreOptions http;
    http.address    = hub->address;
    http.keys       = &hosts.keys;
    http.host       = name;
    http.up_limit   = options.up_limit;
    http.congestion = options.congestion;
    http.feed       = !options.observe;
    return std::make_unique<StoreMeeting>(http);
}

std::unique_ptr<Meeting>
meet(const Hosts & hosts, const std::string & name, const MeetOptions & options) {
    auto meeting = meet_star(hosts, name, options);
    return hosts.direct ? deliver_directly(std::move(meeting), hosts, name, options)
                        : std::move(meeting);
}

std::unique_ptr<RunPeers> make_peers(Meeting & meeting, const StorePeersOptions & options) {
    return std::make_unique<StorePeers>(meeting.store(), meeting.keys(), options);
}

}  // namespace gt
