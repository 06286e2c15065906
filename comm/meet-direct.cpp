// comm/meet-direct.cpp — our server, clients of the peers' servers, and a DirectStore over both.
#include "comm/meet-direct.h"

#include "comm/hub/hub.h"
#include "comm/rounds/store-direct.h"

namespace gt {

namespace {

constexpr Millis kGiveUp{3'000};      // of a peer that does not answer
constexpr Millis kMaxFinish{30'000};  // at the end, for peers that still fetch from us
constexpr Millis kDirectLeavePoll{100};

class DirectMeeting : public Meeting {
public:
    DirectMeeting(
        std::unique_ptr<Meeting> at_hub,
        const Hosts &            hosts,
        const std::string &      name,
        const MeetOptions &      options
    )
        : at_hub_(std::move(at_hub)) {
        const HostEntry * hub = hosts.hub();
        const HostEntry * us  = hosts.find(name);
        DirectOptions     direct;
        direct.name     = name;
        direct.keys     = hosts.keys;
        direct.hub      = &at_hub_->store();
        direct.hub_host = hub->name;
        if (hub->name == name) {
            direct.own = direct.hub;
        } else if (us && !us->address.empty()) {
            served_    = serve(*us, hosts.keys, options);
            direct.own = &served_->store();
        }
        for (const HostEntry & peer : hosts.hosts) {
            if (!peer.address.empty() && peer.name != name && peer.name != hub->name) {
                direct.peers[peer.name] = client_of(peer, hosts, name, options);
            }
        }
        store_ = std::make_unique<DirectStore>(std::move(direct));
    }

    Store &         store() override { return *store_; }
    const RunKeys & keys() const override { return at_hub_->keys(); }
    std::string     check(const std::string & name) override { return at_hub_->check(name); }

    std::optional<HubTraffic> hub_traffic() const override { return at_hub_->hub_traffic(); }

    void finish(Millis timeout) override {
        const Time give_up = std::chrono::steady_clock::now() + std::min(timeout, kMaxFinish);
        try {
            while (served_ && !store_->have_others_left() &&
                   std::chrono::steady_clock::now() < give_up) {
                std::this_thread::sleep_for(kDirectLeavePoll);
            }
        } catch (const StoreError &) {
            return;  // the hub is gone, and so are all others
        }
        at_hub_->finish(timeout);
    }

private:
    static std::unique_ptr<Hub>
    serve(const HostEntry & us, const RunKeys & keys, const MeetOptions & options) {
        HubOptions own;
        own.address    = listen_address(us);
        own.path       = options.hub_path + "-" + us.name;
        own.keys       = keys;
        own.congestion = options.congestion;
        own.up_limit   = options.up_limit;
        own.quiet      = true;
        return std::make_unique<Hub>(own);
    }

    static std::unique_ptr<Store> client_of(
        const HostEntry &   peer,
        const Hosts &       hosts,
        const std::string & name,
        const MeetOptions & options
    ) {
        HttpStoreOptions http;
        http.address       = peer.address;
        http.keys          = &hosts.keys;
        http.host          = name;
        http.n_connections = connections_of(hosts.hosts.size());
        http.congestion    = options.congestion;
        http.up_limit      = options.up_limit;
        http.give_up       = kGiveUp;
        return make_http_store(http);
    }

    std::unique_ptr<Meeting>     at_hub_;
    std::unique_ptr<Hub>         served_;
    std::unique_ptr<DirectStore> store_;
};

}  // namespace

std::unique_ptr<Meeting> deliver_directly(
    std::unique_ptr<Meeting> at_hub,
    const Hosts &            hosts,
    const std::string &      name,
    const MeetOptions &      options
) {
    return std::make_unique<DirectMeeting>(std::move(at_hub), hosts, name, options);
}

}  // namespace gt
