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

// A message, or a shard of a dense exchange: the values that hosts may serve themselves.
struct BulkKey {
    MessageId id;
    bool      is_message = false;
};

// All keys of a run begin with `root`. Functions in the plural return prefixes.
struct RunPaths {
    explicit RunPaths(uint64_t run);

    std::string messages() const;
    std::string messages(uint64_t index) const;
    std::string message(const MessageId & id) const;
    std::string message(uint64_t index, const std::string & host, uint64_t incarnation) const;
    std::string held(uint64_t index) const;
    std::string held(const MessageId & id) const;
    std::string commits() const;
    std::string commit(uint64_t index) const;
    std::string presences() const;
    std::string presences(const std::string & host) const;
    std::string presence(const PresenceKey & key) const;
    std::string hello(const std::string & host, uint64_t incarnation) const;
    std::string leave(const std::string & host, uint64_t incarnation) const;
    std::string epochs() const;
    std::string epoch(uint64_t epoch) const;
    std::string parts(uint64_t index) const;
    std::string
    pieces(uint64_t index, int part, const std::string & host, uint64_t incarnation) const;
    std::string piece(const std::string & pieces, int piece) const;
    std::string readies(uint64_t index) const;
    std::string
    ready(uint64_t index, int part, const std::string & host, uint64_t incarnation) const;
    std::string floors() const;
    std::string floor(uint64_t index) const;
    std::string shards(uint64_t index) const;
    std::string
    shard(uint64_t index, const std::string & host, uint64_t incarnation, int shard) const;
    std::string settings() const;
    std::string model() const;
    std::string probe() const;                          // for probe_atomic_create
    std::string check(const std::string & host) const;  // for check_store

    // Each returns nothing if the key is of another kind or malformed.
    [[nodiscard]] std::optional<PresenceKey> parse_presence(const std::string & key) const;
    [[nodiscard]] std::optional<uint64_t>    parse_commit(const std::string & key) const;
    [[nodiscard]] std::optional<BulkKey>     parse_bulk(const std::string & key) const;
    [[nodiscard]] std::optional<uint64_t>    parse_epoch(const std::string & key) const;
    [[nodiscard]] std::optional<uint64_t>    parse_floor(const std::string & key) const;

    std::string root;  // "r0123456789abcdef/"
};

// A message, a shard or a piece of a checkpoint, of any run: what fills a store.
bool is_bulk_key(const std::string & key);

// A decimal number and nothing else.
[[nodiscard]] std::optional<uint64_t> parse_number(std::string_view text);

}  // namespace gt
