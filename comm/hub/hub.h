// comm/hub/hub.h — the hub: an embedded server that stores values and wakes hosts that wait for them.
//
// Runs alone (tools/hub.cpp) or inside the first host. SIGKILL loses nothing that it acknowledged; a
// power cut loses messages at most, which their senders put again. The TLS handshake rejects peers without the run's key.
// The hub only stores and sends; its hooks (hub-sequencer.h), which run in the same process with
// direct access to its store, order the rounds.
// Read next: hub-requests.cpp, hub-disk.h, hub-sequencer.h, protocol.md.
#pragma once

#include "comm/store/store.h"
#include "comm/wire/frame.h"
#include "comm/wire/seal.h"

namespace gt {

// Called by one thread of the hub, but for on_get, so an implementation needs no lock. Exceptions are logged.
class HubHooks {
public:
    virtual ~HubHooks() = default;

    // Called once, before the first request. `store` is the hub's own and outlives the hooks; a put
    // there wakes waiting hosts and is not reported to on_put.
    virtual void start(Store & store) = 0;

    // A host has put a new key; the value is on disk. In order of arrival. Puts right before a
    // restart of the hub may not be reported: start() must read the store.
    virtual void on_put(const std::string & key) = 0;

    // The host asks for the value of the key, which may not be there. Called by any thread.
    virtual void on_get(const std::string &, const std::string &) {}

    // The public key of the machine that has the name; nothing: nobody has it. Called by any thread.
    virtual std::optional<Key32> key_of(const std::string &) { return std::nullopt; }

    // Called about every 20 ms, and after on_put. `now` is monotonic.
    virtual void tick(std::chrono::steady_clock::time_point now) = 0;
};

struct HubOptions {
    std::string address = "127.0.0.1:0";  // host:port to listen on; [::]: IPv4, too; port 0: any
    std::string path;                     // folder of the store
    RunKeys     keys;                     // the seal key is not needed; host_seed signs commits
    HubHooks *  hooks = nullptr;          // not owned; may be null

    uint64_t                     max_value_bytes = 256ull << 20;  // of one value
    uint64_t                     max_total_bytes = 16ull << 30;   // of all values on disk
    uint64_t                     max_keys        = 1'000'000;
    uint64_t                     host_bytes_s    = 200'000'000;  // per host, each way
    uint64_t                     host_requests_s = 2'000;
    std::shared_ptr<UploadLimit> up_limit;  // of what it sends; null: none
    int                          max_connections = 2048;
    bool                         read_only       = false;  // hosts only get

    int status_port        = -1;  // plain HTTP status page on 127.0.0.1; 0: any free port; -1: none
    std::string congestion = "bbr";  // TCP congestion control, if the kernel allows it
    bool        quiet      = false;  // log only to =hub/hub.log in `path`
};

// Bytes sent to all hosts, and received from them, since the start.
struct HubTraffic {
    uint64_t sent = 0, received = 0;
};

class Hub {
public:
    // Opens the store and listens. Throws Error if the address is taken or the folder is unusable.
    explicit Hub(const HubOptions & options);
    ~Hub();
    Hub(const Hub &)             = delete;
    Hub & operator=(const Hub &) = delete;

    int     port() const;
    int     status_port() const;
    Store & store();  // direct access, without the network

    HubTraffic traffic() const;

    // A line for the status page (hub-status.h). False: malformed.
    bool add_metrics(const std::string & host, const std::string & line);

    // A fault for the log and the status page.
    void fault(const std::string & text);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gt
