// comm/rounds/store-direct.cpp — routes each key, delivers our messages, and pulls those of peers.
#include "comm/rounds/store-direct.h"

#include "comm/rounds/butterfly.h"
#include "comm/wire/held-copy.h"

#include <algorithm>

namespace gt {

constexpr Millis kDown{5'000};  // a peer that does not answer is not asked for this time
constexpr Millis kLook{500};    // one long poll for a held record
constexpr Millis kPull{2'000};  // one long poll for a message at its sender
constexpr Millis kPause{500};   // after a failure

DirectStore::DirectStore(DirectOptions options)
    : options_(std::move(options)), paths_(options_.keys.run), hub_(*options_.hub) {
    if (options_.own) {
        for (const auto & [peer, store] : options_.peers) {
            pullers_.emplace_back([this, name = peer] { pull(name); });
        }
    }
}

DirectStore::~DirectStore() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    moved_.notify_all();
    for (std::thread & puller : pullers_) {
        puller.join();
    }
}

bool DirectStore::put(const std::string & key, std::span<const uint8_t> value, bool if_absent) {
    const auto bulk = paths_.parse_bulk(key);
    if (!bulk || !options_.own || options_.own == &hub_ || bulk->id.host != options_.name) {
        return hub_.put(key, value, if_absent);
    }
    const std::lock_guard lock(deliver_mutex_);
    if (options_.own->get(key)) {
        return hub_.put(
            key, value, if_absent
        );  // put a second time: another host could not fetch it from us
    }
    options_.own->put(key, value);
    if (bulk->is_message) {
        deliver(bulk->id, value);
    } else {
        shards_.push_back(key);
    }
    return true;
}

// Our server has the message. If no peer fetches it in time it goes through the hub, and so do the
// next ones until a held record shows that peers can reach us again.
void DirectStore::deliver(const MessageId & id, std::span<const uint8_t> message) {
    const auto give_up = std::chrono::steady_clock::now() + options_.held_timeout;
    is_reached_        = is_reached_ || hub_.get(paths_.held(last_)).has_value();
    last_              = id;
    while (is_reached_ && has_second() && std::chrono::steady_clock::now() < give_up) {
        bool is_closed = false;
        {
            const std::lock_guard lock(mutex_);
            is_closed = stop_ || (newest_ && newest_->index >= id.index);
        }
        const bool is_held = hub_.get(paths_.held(id), is_closed ? Millis(0) : kLook).has_value();
        if (is_held || is_closed) {
            is_reached_ = is_held;
            shards_.clear();
            return;
        }
    }
    is_reached_ = false;
    for (const std::string & shard : shards_) {
        if (const auto value = options_.own->get(shard)) {
            hub_.put(shard, *value);
        }
    }
    hub_.put(paths_.message(id), message);
    shards_.clear();
}

// Whether there is a member that could hold our message.
bool DirectStore::has_second() {
    const std::lock_guard lock(mutex_);
    return newest_ &&
           std::any_of(newest_->hosts.begin(), newest_->hosts.end(), [&](const CommitHost & host) {
               return host.member && host.name != options_.name &&
                      (options_.peers.contains(host.name) || host.name == options_.hub_host);
           });
}

std::optional<Bytes> DirectStore::get(const std::string & key, std::chrono::milliseconds wait) {
    const auto bulk = paths_.parse_bulk(key);
    if (!bulk) {
        auto value = hub_.get(key, wait);
        if (value) {
            follow(key, *value);
        }
        return value;
    }
    // our own server, the sender, the holder, the hub
    const auto is_good = [&](const std::optional<Bytes> & value) {
        return value && (!bulk->is_message || open_message(options_.keys, bulk->id, *value));
    };
    if (options_.own) {
        if (auto value = options_.own->get(key); is_good(value)) {
            return value;
        }
    }
    if (!options_.peers.contains(bulk->id.host)) {
        return hub_.get(key, wait);
    }
    if (auto value = from(bulk->id.host, key, wait); is_good(value)) {
        return value;
    }
    const auto record = bulk->is_message ? hub_.get(paths_.held(bulk->id)) : std::nullopt;
    const auto held   = record ? parse_held(options_.keys, bulk->id, *record) : std::nullopt;
    if (held) {
        if (auto value = from(held->holder.host, key, {}); is_good(value)) {
            return value;
        }
    }
    return hub_.get(key);
}

std::vector<std::string> DirectStore::list(const std::string & prefix) {
    return hub_.list(prefix);
}

void DirectStore::remove(const std::string & key) {
    hub_.remove(key);
}

// A value that `peer` serves. Nothing also if the peer can't be reached.
std::optional<Bytes>
DirectStore::from(const std::string & peer, const std::string & key, Millis wait) {
    const auto store = options_.peers.find(peer);
    {
        const std::lock_guard lock(mutex_);
        if (store == options_.peers.end() || std::chrono::steady_clock::now() < down_[peer]) {
            return std::nullopt;
        }
    }
    try {
        return store->second->get(key, wait);
    } catch (const StoreError &) {
        const std::lock_guard lock(mutex_);
        down_[peer] = std::chrono::steady_clock::now() + kDown;
        return std::nullopt;
    }
}

// Notes a commit that passes through to our client.
void DirectStore::follow(const std::string & key, std::span<const uint8_t> value) {
    const auto index  = paths_.parse_commit(key);
    auto       commit = index ? parse_commit(options_.keys, *index, value) : std::nullopt;
    if (!commit) {
        return;
    }
    uint64_t floor = 0;
    {
        const std::lock_guard lock(mutex_);
        if (newest_ && newest_->index > *index) {
            return;
        }
        if (commit->complete && commit->complete->index != complete_) {
            complete_before_ = complete_;
            complete_        = commit->complete->index;
            floor            = complete_before_ == kNone ? 0 : complete_before_;
        }
        newest_ = std::move(*commit);
    }
    moved_.notify_all();
    trim(floor);
}

// Removes old values from our server. In the hub's own store the sequencer does that.
void DirectStore::trim(uint64_t floor) {
    if (floor == 0 || !options_.own || options_.own == &hub_) {
        return;
    }
    for (const std::string & key : options_.own->list(paths_.root)) {
        const auto bulk = paths_.parse_bulk(key);
        if (bulk && bulk->id.index < floor) {
            options_.own->remove(key);
        }
    }
}

bool DirectStore::have_others_left() {
    std::optional<Commit> newest;
    {
        const std::lock_guard lock(mutex_);
        newest = newest_;
    }
    return !newest || CommitLog(hub_, options_.keys).have_left(*newest, options_.name);
}

// The message that `peer` will send next, if it is a member and we do not have it yet.
std::optional<MessageId> DirectStore::next_of(const std::string & peer, uint64_t done) {
    const CommitHost * host = newest_ ? newest_->find(peer) : nullptr;
    if (!host || !host->member || newest_->index + 1 <= done) {
        return std::nullopt;
    }
    return MessageId{newest_->index + 1, peer, host->incarnation};
}

// One thread per peer: waits there for the next message.
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
            const auto message = options_.peers.at(peer)->get(paths_.message(*id), kPull);
            is_done            = message && hold(*id, *message);
            if (!message) {
                continue;  // not sent yet, or the round was closed without it
            }
        } catch (const Error &) {
            // retry; a message that our server refuses comes through the hub
        }
        if (is_done) {
            done = id->index;
            continue;
        }
        std::unique_lock lock(mutex_);
        moved_.wait_for(lock, kPause, [&] { return stop_; });
    }
}

// Copies the message, and the shards of its outputs, to our server and writes a held record.
// Shards of inputs stay with their sender: a mean can be computed without them.
bool DirectStore::hold(const MessageId & id, std::span<const uint8_t> message) {
    SignedHead about;
    const auto body = open_message(options_.keys, id, message, &about);
    if (!body) {
        return false;
    }
    if (about.head.phase == Phase::outputs) {
        for (const std::string & key : output_keys(paths_, id, *body)) {
            const auto shard = options_.peers.at(id.host)->get(key);
            if (!shard) {
                return false;
            }
            options_.own->put(key, *shard);
        }
    }
    options_.own->put(paths_.message(id), message);
    hub_.put(paths_.held(id), make_held(options_.keys, id, options_.name, message), true);
    return true;
}

}  // namespace gt
