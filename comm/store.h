// comm/store.h — where hosts leave messages for one another: four verbs over keys and values.
//
// A folder, our hub and any S3-compatible bucket implement it; memory is for tests. Values are
// immutable: a key is written once, and writing it again with the same bytes is harmless.
// An ordinary network failure is retried inside, with back-off and jitter. Only when nothing has
// moved for the store's deadline a StoreError comes out: the caller tries later.
// Every verb may be called from several threads at once.
// Read next: store-file.cpp (the simplest), store-http.cpp (our hub), round rules in protocol.md.
#pragma once

#include "ggml-train/base.h"

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gt {

// The store can't be reached, is full or refuses us. The message says what to do; callers treat it
// as "try later".
class StoreError : public Error {
public:
    using Error::Error;
};

// Who answers has another key: nothing gets better by itself.
class KeyError : public StoreError {
public:
    using StoreError::StoreError;
};

class Store {
public:
    virtual ~Store() = default;

    // Writes an immutable value. Returns false if `if_absent` and the key existed already (only
    // meaningful where probe_atomic_create says so). When put returns, the value survives a crash
    // of the store. A retry inside may find its own first try: false is returned only if the value
    // that is there is another one.
    virtual bool
    put(const std::string & key, std::span<const uint8_t> value, bool if_absent = false) = 0;

    // The value, or nothing if it isn't there within `wait`.
    [[nodiscard]] virtual std::optional<Bytes>
    get(const std::string & key, std::chrono::milliseconds wait = {}) = 0;

    // All keys that begin with `prefix`, sorted. Slow and, in a bucket, paid for: never in a loop.
    [[nodiscard]] virtual std::vector<std::string> list(const std::string & prefix) = 0;

    // Removes the key if it is there.
    virtual void remove(const std::string & key) = 0;
};

// Keys are 1..512 letters of [A-Za-z0-9._~/-], without an empty part, "." or ".." between the
// slashes. REQUIRES of callers: no key is also the folder of another (a file system can't do both).
bool valid_key(const std::string & key);

// Throws Error if the key is not valid: our own keys always are, those of others may not be.
void check_key(const std::string & key);

// True if of several writers of one key exactly one wins, tried with real writers under
// `prefix`; its keys are removed again. Three of five real bucket servers fail this.
[[nodiscard]] bool probe_atomic_create(Store & store, const std::string & prefix);

// Lives as long as the process; for tests and simulations.
std::unique_ptr<Store> make_memory_store();

// A folder that all hosts see (one machine, NFS, SMB). Created if it is not there.
std::unique_ptr<Store> make_file_store(const std::string & path);

struct RunKeys;       // seal.h
struct LineCounters;  // http-client.h

struct HttpStoreOptions {
    std::string                   address;             // host:port of the hub
    const RunKeys *               keys = nullptr;      // copied
    std::string                   host;                // our name, for the hub's log and limits
    int                           n_connections = 16;  // at once; on a lossy line more are faster
    size_t                        part_bytes    = 512 * 1024;  // largest part of a large value
    uint64_t                      up_limit      = 0;           // bytes per second; 0: none
    std::string                   congestion = "bbr";  // where the kernel allows it; tests: "cubic"
    std::chrono::milliseconds     stall{20'000};       // a transfer without progress starts again
    std::chrono::milliseconds     give_up{60'000};     // no progress at all: StoreError
    uint64_t                      max_value_bytes = 1ull << 30;  // refuse to receive more
    bool                          feed            = false;  // rounds come by themselves: feed.h
    std::shared_ptr<LineCounters> counters;                 // may be null
};
std::unique_ptr<Store> make_http_store(const HttpStoreOptions & options);

struct S3StoreOptions {
    std::string url;         // s3://bucket[/prefix][?endpoint=URL&region=NAME]
    std::string endpoint;    // empty: from url, AWS_ENDPOINT_URL, else AWS itself
    std::string region;      // empty: from url, AWS_REGION, AWS_DEFAULT_REGION, else us-east-1
    std::string access_key;  // empty: AWS_ACCESS_KEY_ID, else ~/.aws/credentials
    std::string secret_key;
    std::string session_token;
    int         n_connections = 4;
    size_t      part_bytes    = 8 << 20;  // larger values go up as a multipart upload
    uint64_t    up_limit      = 0;
    std::string congestion    = "bbr";
    std::chrono::milliseconds     stall{20'000};
    std::chrono::milliseconds     give_up{60'000};
    uint64_t                      max_value_bytes = 1ull << 30;
    std::shared_ptr<LineCounters> counters;  // may be null
};
std::unique_ptr<Store> make_s3_store(const S3StoreOptions & options);

}  // namespace gt
