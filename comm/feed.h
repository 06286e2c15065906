// comm/feed.h — what the hub sends a host before it asks: messages and commits, as they arrive.
//
// On a lossy line a request that is lost costs a quarter of a second, and every connection that was
// idle begins slowly again. So a host keeps a few answers open, its *lanes*, and the hub writes new
// values to them: a large one cut into a slice for each lane, a small one whole on every lane, where
// the first to come through counts. What is not there in time is asked for as ever: a feed saves
// time, nothing depends on it.
//
// A lane is a sequence of slices; numbers are little-endian:
//   u32 n | u16 length of the key | u64 size of the value | u64 offset | key | n bytes
// A slice without a key says only that the hub is alive.
#pragma once

#include "comm/http-client.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

namespace gt {

struct Slice {
    std::string              key;
    uint64_t                 size = 0, offset = 0;
    std::span<const uint8_t> bytes;
};

constexpr size_t kSmallValue   = 8 * 1024;  // whole on every lane
constexpr size_t kMaxFeedValue = 32 << 20;  // larger ones are asked for
constexpr int    kMaxLanes     = 64;

// What of a value of this size belongs on a lane: offset and number of bytes, none if 0.
std::pair<uint64_t, uint64_t> slice_of(uint64_t size, int lane, int n_lanes);

void append_slice(Bytes & out, const Slice & slice);

// Takes the first slice of `in` away. Nothing: it is not all there yet. An Error: no slice at all.
[[nodiscard]] std::optional<Slice> take_slice(std::span<const uint8_t> & in);

// The host's end: puts slices together, and keeps the last values for whoever asks.
class Feed {
public:
    // REQUIRES: the client that it is started on ends before the feed.
    Feed(uint64_t run, int n_lanes);
    ~Feed();

    void start(HttpClient & client);

    // Values under this key come by themselves: all lanes are open.
    bool covers(const std::string & key) const;

    // A commit that follows the newest one that came: the hub has not written it yet.
    bool is_to_come(const std::string & key) const;

    // The value, if all of it is there within `wait`. The wait for one of which something has come
    // is at least `rest`.
    std::optional<Bytes>
    find(const std::string & key, std::chrono::milliseconds wait, std::chrono::milliseconds rest);

    // Of a value that has begun to come: what is not there yet.
    struct Gap {
        uint64_t size = 0, offset = 0, n = 0;
    };
    std::vector<Gap> missing(const std::string & key) const;

    // What came, on a lane or otherwise.
    void add(const Slice & slice);

private:
    struct Lane;
    struct Value {
        Bytes                 bytes;
        std::vector<uint64_t> have;  // offsets of slices that came
        size_t                n_left = 0;
    };
    std::string                        messages_, commits_;  // prefixes of keys
    std::vector<std::unique_ptr<Lane>> lanes_;
    mutable std::mutex                 mutex_;
    std::condition_variable            changed_;
    std::map<std::string, Value>       values_;
    std::deque<std::string>            order_;  // of their first slices
    size_t                             n_bytes_ = 0;
    int                                n_open_  = 0;
    std::string                        newest_commit_;  // since all lanes are open
};

}  // namespace gt
