// comm/http/feed.h — values that the hub sends to a host without a request: messages and commits.
//
// On a lossy link a lost request costs a quarter of a second, and an idle connection starts slowly.
// So a host keeps several answers open, its *lanes*, and the hub writes new values to them: a large
// value cut into one range per lane, a small one whole on a few lanes, where the first copy counts. A
// value that does not arrive in time is requested as usual: a feed only saves time.
//
// A lane is a sequence of ranges; numbers are little-endian:
//   u32 n | u16 length of the key | u64 size of the value | u64 offset | key | n bytes
// A range without a key is a keep-alive.
#pragma once

#include "comm/http/http-client.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

namespace gt {

// Some bytes of a value.
struct FeedRange {
    std::string              key;
    uint64_t                 size = 0, offset = 0;
    std::span<const uint8_t> bytes;
};

constexpr size_t kSmallValue   = 8 * 1024;  // whole
constexpr int    kSmallCopies  = 3;         // on as many lanes
constexpr size_t kMaxFeedValue = 32 << 20;  // larger ones are not sent
constexpr int    kMaxLanes     = 64;

// Offset and length of a lane's range of a value; length 0: none.
std::pair<uint64_t, uint64_t> lane_range(uint64_t size, int lane, int n_lanes);

void append_range(Bytes & out, const FeedRange & range);

// Removes the first range from `in`. Nothing: it is not complete yet. Throws Error if it is invalid.
[[nodiscard]] std::optional<FeedRange> take_range(std::span<const uint8_t> & in);

// The host's end: joins ranges, and keeps values until they are read.
class Feed {
public:
    // REQUIRES: the feed outlives the client that it is started on.
    Feed(uint64_t run, int n_lanes);
    ~Feed();

    void start(HttpClient & client);

    // Whether the hub sends this key: all lanes are open.
    bool covers(const std::string & key) const;

    // Whether the key is a commit after the newest one that arrived: it does not exist yet.
    bool is_to_come(const std::string & key) const;

    // The value, if it is complete within `wait`; at least `rest` if a part of it has arrived. It is
    // handed out once: the store may have another one later.
    std::optional<Bytes>
    find(const std::string & key, std::chrono::milliseconds wait, std::chrono::milliseconds rest);

    // The missing ranges of a value of which some have arrived.
    struct Gap {
        uint64_t size = 0, offset = 0, n = 0;
    };
    std::vector<Gap> missing(const std::string & key) const;

    // A range that arrived, on a lane or otherwise.
    void add(const FeedRange & range);

private:
    struct Lane;
    struct Value {
        Bytes                 bytes;
        std::vector<uint64_t> have;  // offsets of ranges that arrived
        size_t                n_left = 0;
    };
    std::string                        messages_, commits_;  // prefixes of keys
    std::vector<std::unique_ptr<Lane>> lanes_;
    mutable std::mutex                 mutex_;
    std::condition_variable            changed_;
    std::map<std::string, Value>       values_;
    std::deque<std::string>            order_;  // of their first ranges
    size_t                             n_bytes_ = 0;
    int                                n_open_  = 0;
    std::string                        newest_commit_;  // since all lanes are open
};

}  // namespace gt
