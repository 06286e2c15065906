// comm/wire/keys.h — the keys of a run in its store: how they are made and how they are parsed.
//
// The only place that knows the grammar of keys; protocol.md lists them with their values. Rounds
// are numbered densely here: the *index*. The trainer's own number, the *step*, travels in messages.
#pragma once

#include "ggml-train/base/base.h"

#include <optional>
#include <string>
#include <string_view>

namespace gt {

// The sender of a message, and the round it is for.
struct MessageId {
    uint64_t    index = 0;
    std::string host;
    uint64_t    incarnation = 0;
};

struct PresenceKey {
    enum class Kind : uint8_t { hello, leave, ask, removed, restored, stuck };

    Kind        kind = Kind::hello;
    std::string host;
    uint64_t    incarnation = 0;  // ask, restored, stuck: index of a commit; removed: 0

    // It tells when an incarnation began or ended.
    bool is_start() const { return kind == Kind::hello || kind == Kind::leave; }
};

// Incarnations count starts of a host. A number far above the last one is not a start: it would lock
// its name out for good.
constexpr uint64_t kMaxStarts = 1 << 20;
constexpr bool     is_next_incarnation(uint64_t incarnation, uint64_t known) {
        return incarnation > known && incarnation - known <= kMaxStarts;
}

constexpr size_t kMaxSlices = 1024;  // of a shared checkpoint

// A message, or a shard of an exchange in shares: the values that hosts may serve themselves.
struct BulkKey {
    MessageId id;
    bool      is_message = false;
};

// All keys of a run begin with `root`. Functions in the plural return prefixes.
struct RunPaths {
    explicit RunPaths(uint64_t run);

    std::string settings() const { return root + "settings"; }
    std::string model() const { return root + "model"; }

    std::string messages() const { return root + "message/"; }
    std::string messages(uint64_t index) const { return messages() + number(index) + "/"; }
    std::string message(const MessageId & id) const { return messages(id.index) + sender(id); }
    std::string message(uint64_t index, const std::string & host, uint64_t incarnation) const {
        return message({index, host, incarnation});
    }
    std::string held(uint64_t index) const { return root + "held/" + number(index) + "/"; }
    std::string held(const MessageId & id) const { return held(id.index) + sender(id); }
    std::string shards() const { return root + "shard/"; }
    std::string shards(uint64_t index) const { return shards() + number(index) + "/"; }
    std::string shard(const MessageId & id, int shard) const {
        return shards(id.index) + sender(id) + format("/%d", shard);
    }

    std::string commits() const { return root + "commit/"; }
    std::string commit(uint64_t index) const { return commits() + number(index); }
    std::string floors() const { return root + "floor/"; }
    std::string floor(uint64_t index) const { return floors() + number(index); }

    std::string presences() const { return root + "presence/"; }
    std::string presences(const std::string & host) const { return presences() + host + "/"; }
    std::string presence(const PresenceKey & key) const;
    std::string hello(const std::string & host, uint64_t incarnation) const {
        return presence({PresenceKey::Kind::hello, host, incarnation});
    }
    std::string leave(const std::string & host, uint64_t incarnation) const {
        return presence({PresenceKey::Kind::leave, host, incarnation});
    }

    // of the slices of a shared checkpoint
    std::string parts(uint64_t index) const { return root + "part/" + number(index) + "/"; }
    std::string piece(const MessageId & id, int slice, uint32_t piece) const {
        return parts(id.index) + format("%d/", slice) + sender(id) + format("/%u", piece);
    }
    std::string readies(uint64_t index) const { return root + "ready/" + number(index) + "/"; }
    std::string ready(const MessageId & id, int slice) const {
        return readies(id.index) + format("%d/", slice) + sender(id);
    }

    std::string probe() const { return root + "probe"; }  // for probe_atomic_create
    std::string check(const std::string & host) const { return root + "check/" + host; }

    // Each returns nothing if the key is of another kind or malformed.
    [[nodiscard]] std::optional<PresenceKey> parse_presence(const std::string & key) const;
    [[nodiscard]] std::optional<uint64_t>    parse_commit(const std::string & key) const;
    [[nodiscard]] std::optional<int>         parse_slice(const std::string & key) const;
    [[nodiscard]] std::optional<BulkKey>     parse_bulk(const std::string & key) const;
    [[nodiscard]] std::optional<uint64_t>    parse_floor(const std::string & key) const;

    // Only the sequencer writes it.
    bool is_sequencers(const std::string & key) const;

    std::string root;  // "r0123456789abcdef/"

private:
    static std::string number(uint64_t value);
    static std::string sender(const MessageId & id) {
        return id.host + "/" + number(id.incarnation);
    }
};

// A message, a shard or a piece of a checkpoint, of any run: what fills a store.
bool is_bulk_key(const std::string & key);

// A decimal number and nothing else.
[[nodiscard]] std::optional<uint64_t> parse_number(std::string_view text);

}  // namespace gt
