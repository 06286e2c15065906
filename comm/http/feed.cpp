// comm/http/feed.cpp — see feed.h.
#include "comm/http/feed.h"

#include "comm/wire/keys.h"
#include "comm/wire/wire.h"

#include <algorithm>

namespace gt {

constexpr size_t kHeadBytes     = 4 + 2 + 8 + 8;
constexpr size_t kKeptBytes     = 512 << 20;  // not read yet
constexpr size_t kKeptValues    = 8192;
constexpr size_t kMaxKey        = 600;
constexpr size_t kMinRangeBytes = 8 * 1024;

std::pair<uint64_t, uint64_t> lane_range(uint64_t size, int lane, int n_lanes) {
    if (size <= kSmallValue) {
        return {0, lane < kSmallCopies ? size : 0};
    }
    const auto     n      = static_cast<uint64_t>(n_lanes);
    const uint64_t each   = std::max<uint64_t>((size + n - 1) / n, kMinRangeBytes);
    const uint64_t offset = std::min(size, each * static_cast<uint64_t>(lane));
    return {offset, std::min(each, size - offset)};
}

void append_range(Bytes & out, const FeedRange & range) {
    WireWriter head;
    head.u32(static_cast<uint32_t>(range.bytes.size()));
    head.u16(static_cast<uint16_t>(range.key.size()));
    head.u64(range.size);
    head.u64(range.offset);
    const Bytes & bytes = head.bytes();
    out.insert(out.end(), bytes.begin(), bytes.end());
    out.insert(out.end(), range.key.begin(), range.key.end());
    out.insert(out.end(), range.bytes.begin(), range.bytes.end());
}

std::optional<FeedRange> take_range(std::span<const uint8_t> & in) {
    if (in.size() < kHeadBytes) {
        return std::nullopt;
    }
    WireReader     head(in.first(kHeadBytes));
    const size_t   n     = head.u32();
    const size_t   n_key = head.u16();
    const uint64_t size = head.u64(), offset = head.u64();
    if (n_key > kMaxKey || size > kMaxFeedValue || offset > size || n > size - offset) {
        throw Error("hub: invalid data on a feed; use the same version on all hosts");
    }
    if (in.size() < kHeadBytes + n_key + n) {
        return std::nullopt;
    }
    const auto key = in.subspan(kHeadBytes, n_key);
    FeedRange  out{{key.begin(), key.end()}, size, offset, in.subspan(kHeadBytes + n_key, n)};
    in = in.subspan(kHeadBytes + n_key + n);
    return out;
}

struct Feed::Lane : HttpSink {
    Feed &      feed;
    HttpRequest request;
    Bytes       pending;
    bool        open = false;

    explicit Lane(Feed & f) : feed(f) {}

    void begin() override { set_open(false); }

    bool take(std::span<const uint8_t> bytes) override {
        set_open(true);
        pending.insert(pending.end(), bytes.begin(), bytes.end());
        std::span<const uint8_t> rest = pending;
        try {
            while (const auto range = take_range(rest)) {
                feed.add(*range);
            }
        } catch (const Error &) {
            return false;  // open the lane again
        }
        pending.erase(pending.begin(), pending.end() - static_cast<ptrdiff_t>(rest.size()));
        return true;
    }

    void set_open(bool now) {
        const std::lock_guard lock(feed.mutex_);
        feed.n_open_ += static_cast<int>(now) - static_cast<int>(open);
        open = now;
        if (!now) {
            pending.clear();
            feed.newest_commit_.clear();
        }
    }
};

Feed::Feed(uint64_t run, int n_lanes)
    : messages_(RunPaths(run).messages()), commits_(RunPaths(run).commits()) {
    for (int i = 0; i < n_lanes; ++i) {
        lanes_.push_back(std::make_unique<Lane>(*this));
    }
}

Feed::~Feed() = default;

void Feed::start(HttpClient & client) {
    for (size_t i = 0; i < lanes_.size(); ++i) {
        HttpRequest & request = lanes_[i]->request;
        request.path          = format("/feed?lane=%zu&lanes=%zu", i, lanes_.size());
        request.path += "&prefix=" + messages_ + "&prefix=" + commits_;
        client.stream(request, *lanes_[i]);
    }
}

bool Feed::covers(const std::string & key) const {
    const std::lock_guard lock(mutex_);
    return n_open_ == static_cast<int>(lanes_.size()) &&
           (key.starts_with(messages_) || key.starts_with(commits_));
}

bool Feed::is_to_come(const std::string & key) const {
    const std::lock_guard lock(mutex_);
    return key.starts_with(commits_) && !newest_commit_.empty() && key > newest_commit_;
}

void Feed::add(const FeedRange & range) {
    if (range.key.empty()) {
        return;
    }
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = values_.try_emplace(range.key);
    Value & value           = at->second;
    if (is_new) {
        value.bytes.resize(range.size);
        value.n_left = range.size;
        n_bytes_ += range.size;
        order_.push_back(range.key);
    }
    const bool had =
        std::find(value.have.begin(), value.have.end(), range.offset) != value.have.end();
    if (!had && value.bytes.size() == range.size && range.bytes.size() <= value.n_left) {
        std::copy(
            range.bytes.begin(), range.bytes.end(),
            value.bytes.begin() + static_cast<ptrdiff_t>(range.offset)
        );
        value.have.push_back(range.offset);
        value.n_left -= range.bytes.size();
    }
    if (range.key.starts_with(commits_) && n_open_ == static_cast<int>(lanes_.size())) {
        newest_commit_ = std::max(newest_commit_, range.key);
    }
    while ((n_bytes_ > kKeptBytes || order_.size() > kKeptValues) && order_.size() > 1) {
        if (const auto oldest = values_.find(order_.front()); oldest != values_.end()) {
            n_bytes_ -= oldest->second.bytes.size();
            values_.erase(oldest);
        }
        order_.pop_front();
    }
    changed_.notify_all();
}

std::vector<Feed::Gap> Feed::missing(const std::string & key) const {
    std::vector<Gap>      gaps;
    const std::lock_guard lock(mutex_);
    const auto            found = values_.find(key);
    if (found != values_.end() && found->second.n_left > 0) {
        const Value &  value   = found->second;
        const uint64_t size    = value.bytes.size();
        const int      n_lanes = static_cast<int>(lanes_.size());
        for (int lane = 0; lane < n_lanes; ++lane) {
            const auto [offset, n] = lane_range(size, lane, n_lanes);
            const auto & have      = value.have;
            if (n > 0 && std::find(have.begin(), have.end(), offset) == have.end()) {
                gaps.push_back({size, offset, n});
            }
        }
    }
    return gaps;
}

std::optional<Bytes> Feed::find(
    const std::string & key, std::chrono::milliseconds wait, std::chrono::milliseconds rest
) {
    const auto       begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    for (;;) {
        const auto found = values_.find(key);
        if (found != values_.end() && found->second.n_left == 0) {
            Bytes value = std::move(found->second.bytes);
            n_bytes_ -= value.size();
            values_.erase(found);
            return value;
        }
        const auto end = begin + (found != values_.end() ? std::max(wait, rest) : wait);
        if (std::chrono::steady_clock::now() >= end) {
            return std::nullopt;
        }
        changed_.wait_until(lock, end);
    }
}

}  // namespace gt
