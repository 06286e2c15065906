// comm/store/store.h — where hosts exchange values: four verbs over keys and values.
//
// Implemented by a folder, our hub and any S3-compatible bucket. Values are immutable: a key is
// written once, and writing it again with the same bytes is harmless. Ordinary network failures are
// retried inside, with back-off and jitter; StoreError means that nothing has moved for the store's
// timeout, and that the caller should retry later. All verbs are thread-safe.
// Read next: store-file.cpp (the simplest), store-http.cpp (our hub), store-kinds.h, protocol.md.
#pragma once

#include "comm/http/link.h"

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gt {

using Time   = std::chrono::steady_clock::time_point;
using Millis = std::chrono::milliseconds;

// The store can't be reached, is full or refuses us. The message says what to do. Retryable.
class StoreError : public Error {
public:
    using Error::Error;
};

// The peer uses a different run key. Not retryable.
class KeyError : public StoreError {
public:
    using StoreError::StoreError;
};

class Store {
public:
    virtual ~Store() = default;

    // Writes an immutable value, which survives a crash of the store when put returns. With
    // `if_absent`, returns false if the key has another value already; the same value counts as
    // ours, because a retry may find the result of the first attempt. Reliable only where
    // probe_atomic_create returns true.
    virtual bool
    put(const std::string & key, std::span<const uint8_t> value, bool if_absent = false) = 0;

    // The value, or nothing if it is not there within `wait`.
    [[nodiscard]] virtual std::optional<Bytes>
    get(const std::string & key, std::chrono::milliseconds wait = {}) = 0;

    // All keys with the prefix, sorted. Slow, and buckets charge for it: never call it in a loop.
    [[nodiscard]] virtual std::vector<std::string> list(const std::string & prefix) = 0;

    // Removes the key if it is there. Over the network a hub removes nothing.
    virtual void remove(const std::string & key) = 0;

    // Whether little space is left, as far as it is known.
    [[nodiscard]] virtual bool is_nearly_full() { return false; }
};

// Keys have 1..512 characters of [A-Za-z0-9._~/-] and no empty part, "." or ".." between slashes.
// Callers must not use a key that is a folder of another one (a file system can't have both).
bool valid_key(const std::string & key);

// Throws Error if the key is not valid.
void check_key(const std::string & key);

// The text with '?' for control characters: what others sent must not steer a terminal.
std::string one_line(std::string text);

// Whether exactly one of several concurrent writers of a key wins, tested with real writers under
// `prefix`. Three of five bucket servers fail this.
[[nodiscard]] bool probe_atomic_create(Store & store, const std::string & prefix);

// A folder that all hosts share (one machine, NFS, SMB). Created if it is missing.
std::unique_ptr<Store> make_file_store(const std::string & path);

struct RunKeys;  // seal.h

struct HttpStoreOptions : LinkOptions {
    HttpStoreOptions() { n_connections = 16; }  // for the feed, and as many for large values

    std::string     address;                       // host:port[,host:port...] of the hub
    const RunKeys * keys = nullptr;                // copied
    std::string     host;                          // our name, for the hub's log and limits
    size_t          range_bytes     = 512 * 1024;  // largest range of a large value
    uint64_t        max_value_bytes = 1ull << 30;  // reject larger ones
    bool            feed            = false;       // messages and commits without requests: feed.h
};
std::unique_ptr<Store> make_http_store(const HttpStoreOptions & options);

// HttpStoreOptions::n_connections for one of n hosts: a hub has a limited number of them.
int connections_of(size_t n_hosts);

struct S3StoreOptions : LinkOptions {
    std::string url;         // s3://bucket[/prefix][?endpoint=URL&region=NAME]
    std::string access_key;  // empty: AWS_ACCESS_KEY_ID, else ~/.aws/credentials
    std::string secret_key;
    uint64_t    max_value_bytes = 1ull << 30;
};
std::unique_ptr<Store> make_s3_store(const S3StoreOptions & options);

}  // namespace gt
