// comm/hub.h — the meeting point: an embedded server that keeps values and wakes those who wait.
//
// Runs alone (tools/hub.cpp) or inside the first host. Everything is on disk before it is
// acknowledged, so SIGKILL loses nothing. Nobody without the run's key gets past the handshake.
// The hub moves bytes; ordering rounds is the work of its hooks (sequencer.h), which run in the
// same process with direct access to its store.
// Read next: hub-requests.cpp, hub-disk.h (what is on disk), hub-sequencer.h, protocol.md.
#pragma once

#include "comm/seal.h"
#include "comm/store.h"

namespace gt {

// What a hub does besides storing. All three are called by one thread of the hub, one after the
// other, so that an implementation needs no lock. An exception is written to the log; the hub
// goes on.
class HubHooks {
public:
    virtual ~HubHooks() = default;

    // Once, before the first request. `store` is the hub's own, lives longer than the hooks, and
    // what is put there wakes waiting hosts at once (and is not reported to on_put again).
    virtual void start(Store & store) = 0;

    // A host has put `key`; the value is on disk. Every put of a new key is reported, in order of
    // arrival, unless the hub restarts in between: start() must look at what is there.
    virtual void on_put(const std::string & key) = 0;

    // About every 20 ms, and after each on_put. `now` is monotonic.
    virtual void tick(std::chrono::steady_clock::time_point now) = 0;
};

struct HubOptions {
    std::string address = "127.0.0.1:0";  // host:port to listen on; port 0: any free one
    std::string path;                     // folder of the store
    RunKeys     keys;                     // the seal key is not needed
    HubHooks *  hooks = nullptr;          // not owned; may be null

    uint64_t max_value_bytes = 256ull << 20;  // of one value
    uint64_t max_total_bytes = 16ull << 30;   // of all values on disk
    uint64_t max_keys        = 1'000'000;
    uint64_t host_bytes_s    = 200'000'000;  // per host, each way
    uint64_t host_requests_s = 2'000;
    int      max_connections = 2048;
    int      max_hosts       = 256;

    int status_port        = -1;  // plain HTTP status page on 127.0.0.1; 0: any free port; -1: none
    std::string congestion = "bbr";  // where the kernel allows it; tests: "cubic"
    bool        quiet      = false;  // log to =hub/hub.log in `path` only
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

    // A line for the status page, as hosts put it under metrics/ (hub-status.h). False: malformed.
    bool add_metrics(const std::string & host, const std::string & line);

    // A line for the log and the status page, e.g. of the hooks.
    void fault(const std::string & text);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gt
