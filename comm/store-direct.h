// comm/store-direct.h — direct delivery: hosts serve what they send, the hub carries small records.
//
// A store in front of the hub's. Our messages and shards go to a server of our own; those of others
// are fetched from theirs. Everything else (commits, presences, checkpoints) is the hub's. The
// commits that pass through tell which messages come next: a thread per serving peer waits at it for
// its next message, puts that into our server, too, and tells the sequencer (held.h). So a message
// counts only once a second member holds it. Who can't be reached delivers through the hub.
// Read next: protocol.md, "Star or direct".
#pragma once

#include "comm/membership.h"
#include "comm/store.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace gt {

struct DirectOptions {
    std::string name;
    RunKeys     keys;
    Store *     hub = nullptr;
    std::string hub_host;         // in whose process the hub is, if any
    Store *     own = nullptr;    // what our server serves; null: we have none
    Millis      patience{5'000};  // for a second member, before the hub is used

    std::map<std::string, std::unique_ptr<Store>> peers;  // servers of others, by name
};

class DirectStore : public Store {
public:
    // REQUIRES: the stores live longer. `own` may be `hub`: the hub is in this process.
    explicit DirectStore(DirectOptions options);
    ~DirectStore() override;

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override;
    std::optional<Bytes>     get(const std::string & key, std::chrono::milliseconds wait) override;
    std::vector<std::string> list(const std::string & prefix) override;
    void                     remove(const std::string & key) override;

    // Nobody of the newest round's members is left to ask us for anything.
    bool have_others_left();

private:
    // A key of what may travel directly, and whose it is.
    struct Bulk {
        MessageId id;
        bool      is_message = false;
    };
    std::optional<Bulk>  parse_bulk(const std::string & key) const;
    void                 deliver(const MessageId & id, std::span<const uint8_t> message);
    void                 follow(const std::string & key, std::span<const uint8_t> value);
    void                 trim(uint64_t floor);
    bool                 has_second();
    std::optional<Bytes> from(const std::string & peer, const std::string & key, Millis wait);

    std::optional<MessageId> next_of(const std::string & peer, uint64_t done);
    void                     pull(const std::string & peer);
    bool                     hold(const MessageId & id, std::span<const uint8_t> message);

    DirectOptions options_;
    RunPaths      paths_;
    Store &       hub_;

    std::mutex              mutex_;
    std::condition_variable moved_;
    std::optional<Commit>   newest_;  // of the commits that passed through
    std::map<std::string, std::chrono::steady_clock::time_point> down_;  // peers, until when
    uint64_t complete_ = kNone, complete_before_ = kNone;  // shared checkpoints: retention.h
    bool     stop_ = false;

    std::vector<std::string> shards_;             // ours since the last message
    bool                     is_reached_ = true;  // others come for what we serve
    MessageId                last_;
    std::vector<std::thread> pullers_;
};

}  // namespace gt
