// comm/rounds/store-direct.h — direct delivery: hosts serve their messages, the hub carries small records.
//
// A store in front of the hub's. Our messages and shards are put into a server of our own, those of
// others are fetched from theirs. Everything else (commits, presences, checkpoints) goes to the hub.
// The commits that pass through tell which messages come next: a thread per peer waits there for the
// next message, copies it to our server, and writes a held record (held-copy.h). The sequencer
// accepts a message when a second member holds it. A host that peers can't reach uses the hub.
// Read next: protocol.md, "Star or direct".
#pragma once

#include "comm/sequencer/commit-log.h"
#include "comm/store/store.h"

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
    std::string hub_host;             // the host whose process runs the hub; may be empty
    Store *     own = nullptr;        // the store of our server; null: we have none
    Millis      held_timeout{5'000};  // for a held record, before the hub is used

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

    // All other members of the newest round have left: no peer will ask us for anything.
    bool have_others_left();

private:
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
    std::optional<Commit>   newest_;  // commit that passed through
    std::map<std::string, std::chrono::steady_clock::time_point>
             down_;                                        // peers that do not answer, until when
    uint64_t complete_ = kNone, complete_before_ = kNone;  // shared checkpoints: retention.h
    bool     stop_ = false;

    std::mutex               deliver_mutex_;      // held while we put our own; guards these:
    std::vector<std::string> shards_;             // our keys since the last message
    bool                     is_reached_ = true;  // peers fetch what we serve
    MessageId                last_;
    std::vector<std::thread> pullers_;
};

}  // namespace gt
