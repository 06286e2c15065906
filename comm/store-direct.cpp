// comm/store-direct.cpp — where each key goes, and how we deliver; the other direction is in pull.cpp.
#include "comm/store-direct.h"

#include "comm/held.h"

#include <algorithm>
#include <charconv>

namespace gt {

constexpr Millis kDown{5'000};  // a peer that does not answer is left alone for so long
constexpr Millis kLook{500};

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

// message/INDEX/HOST/LIFE or shard/INDEX/HOST/LIFE/NUMBER
std::optional<DirectStore::Bulk> DirectStore::parse_bulk(const std::string & key) const {
    const bool        is_message = key.starts_with(paths_.root + "message/");
    const std::string prefix     = paths_.root + (is_message ? "message/" : "shard/");
    if (!key.starts_with(prefix)) {
        return std::nullopt;
    }
    const size_t host  = key.find('/', prefix.size()) + 1;
    const size_t life  = key.find('/', host) + 1;
    const auto   index = parse_tail(prefix, key.substr(0, host - 1));
    const auto   lives = parse_tail("", key.substr(life, key.find('/', life) - life));
    if (!index || !lives) {
        return std::nullopt;
    }
    return Bulk{{*index, key.substr(host, life - 1 - host), *lives}, is_message};
}

bool DirectStore::put(const std::string & key, std::span<const uint8_t> value, bool if_absent) {
    const auto bulk = parse_bulk(key);
    if (!bulk || !options_.own || options_.own == &hub_ || bulk->id.host != options_.name) {
        return hub_.put(key, value, if_absent);
    }
    if (options_.own->get(key)) {
        return hub_.put(key, value, if_absent);  // again: somebody could not get it from us
    }
    options_.own->put(key, value);
    if (bulk->is_message) {
        deliver(bulk->id, value);
    } else {
        shards_.push_back(key);
    }
    return true;
}

// Our server has it. If nobody comes for it, it goes through the hub, and so do the next ones until
// somebody has come after all.
void DirectStore::deliver(const MessageId & id, std::span<const uint8_t> message) {
    const auto give_up = std::chrono::steady_clock::now() + options_.patience;
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
    hub_.put(paths_.message(id.index, id.host, id.incarnation), message);
    shards_.clear();
}

// Is there a member that could hold our message?
bool DirectStore::has_second() {
    const std::lock_guard lock(mutex_);
    return newest_ &&
           std::any_of(newest_->hosts.begin(), newest_->hosts.end(), [&](const CommitHost & host) {
               return host.member && host.name != options_.name &&
                      (options_.peers.contains(host.name) || host.name == options_.hub_host);
           });
}

std::optional<Bytes> DirectStore::get(const std::string & key, std::chrono::milliseconds wait) {
    const auto bulk = parse_bulk(key);
    if (!bulk) {
        auto value = hub_.get(key, wait);
        if (value) {
            follow(key, *value);
        }
        return value;
    }
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
    const auto word = bulk->is_message ? hub_.get(paths_.held(bulk->id)) : std::nullopt;
    const auto held = word ? parse_held(options_.keys, bulk->id, *word) : std::nullopt;
    if (held) {
        if (auto value = from(held->holder, key, {}); is_good(value)) {
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

// What another one serves. Nothing also if it can't be reached: the caller looks elsewhere.
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

// A commit on its way to our client.
void DirectStore::follow(const std::string & key, std::span<const uint8_t> value) {
    const std::string prefix   = paths_.root + "commit/";
    const size_t      dash     = key.rfind('-');
    const auto        index    = parse_tail(prefix, key.substr(0, dash));
    uint32_t          revision = 0;
    if (!index) {
        return;
    }
    std::from_chars(key.data() + dash + 1, key.data() + key.size(), revision);
    auto commit = parse_commit(options_.keys, *index, revision, value);
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

// The hub's own store is swept by the sequencer.
void DirectStore::trim(uint64_t floor) {
    if (floor == 0 || !options_.own || options_.own == &hub_) {
        return;
    }
    for (const std::string & key : options_.own->list(paths_.root)) {
        const auto bulk = parse_bulk(key);
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
    return !newest ||
           std::all_of(newest->hosts.begin(), newest->hosts.end(), [&](const CommitHost & host) {
               return !host.member || host.name == options_.name ||
                      hub_.get(paths_.leave(host.name, host.incarnation)).has_value();
           });
}

}  // namespace gt
