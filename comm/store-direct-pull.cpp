// comm/store-direct-pull.cpp — fetching what others serve as soon as it is there, and holding it.
#include "comm/butterfly.h"
#include "comm/held.h"
#include "comm/store-direct.h"

namespace gt {

constexpr Millis kPull{2'000};  // one long poll at a peer; the round may close meanwhile
constexpr Millis kPause{500};   // after a failure

// The message that `peer` will send next, if it is a member and we do not have it yet.
std::optional<MessageId> DirectStore::next_of(const std::string & peer, uint64_t done) {
    const CommitHost * host = newest_ ? newest_->find(peer) : nullptr;
    if (!host || !host->member || newest_->index + 1 <= done) {
        return std::nullopt;
    }
    return MessageId{newest_->index + 1, peer, host->incarnation};
}

// The life of a thread that waits at one peer.
void DirectStore::pull(const std::string & peer) {
    uint64_t done = 0;
    while (true) {
        std::optional<MessageId> id;
        {
            std::unique_lock lock(mutex_);
            moved_.wait(lock, [&] { return stop_ || (id = next_of(peer, done)); });
            if (stop_) {
                return;
            }
        }
        bool is_done = false;
        try {
            const auto message = options_.peers.at(peer)->get(
                paths_.message(id->index, id->host, id->incarnation), kPull
            );
            is_done = message && hold(*id, *message);
            if (!message) {
                continue;  // not yet; or the round was closed without it
            }
        } catch (const StoreError &) {
            // try again
        }
        if (is_done) {
            done = id->index;
            continue;
        }
        std::unique_lock lock(mutex_);
        moved_.wait_for(lock, kPause, [&] { return stop_; });
    }
}

// Makes a copy that we serve, too, of the message and the shards that it tells of, and says so.
// Shards of inputs stay with their sender: a mean can be taken without them.
bool DirectStore::hold(const MessageId & id, std::span<const uint8_t> message) {
    MessageHead head;
    const auto  body = open_message(options_.keys, id, message, &head);
    if (!body) {
        return false;
    }
    if (head.phase == 2) {
        for (const std::string & key : output_keys(paths_, id, *body)) {
            const auto shard = options_.peers.at(id.host)->get(key);
            if (!shard) {
                return false;
            }
            options_.own->put(key, *shard);
        }
    }
    options_.own->put(paths_.message(id.index, id.host, id.incarnation), message);
    hub_.put(paths_.held(id), make_held(options_.keys, id, options_.name, message), true);
    return true;
}

}  // namespace gt
