// comm/store/store-http.cpp — our hub as a store: small values whole, large ones in concurrent ranges.
//
// If the hub restarts during an upload, it is asked for the missing ranges. All ranges of a download
// are of one version of the value.
#include "comm/store/store-http.h"

#include "comm/http/feed.h"
#include "comm/wire/keys.h"
#include "comm/wire/seal.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <numeric>
#include <sstream>
#include <utility>

namespace gt {

static constexpr auto   kPoll         = std::chrono::milliseconds(25'000);  // one long poll
static constexpr size_t kFirstBytes   = 128 * 1024;  // requested before the size is known
static constexpr size_t kMinRange     = 16 * 1024;   // fits into a connection's first packets
static constexpr size_t kMaxRange     = 1 << 20;     // of one request to the hub
static constexpr size_t kMaxHedged    = 256 * 1024;  // larger ranges are not sent twice
static constexpr size_t kMaxList      = 8 << 20;
static constexpr size_t kKeptMessages = 2;  // as many are in flight, with overlap
static constexpr int    kRestarts     = 5;  // of the hub during one upload
static constexpr auto   kFeedWait     = std::chrono::milliseconds(1'000);  // then request the value
static constexpr auto   kFeedRest     = std::chrono::milliseconds(150);    // for missing ranges

HttpOptions http_options(const HttpStoreOptions & o) {
    GT_CHECK(o.keys, "keys are missing");
    HttpOptions        options{o};
    std::istringstream addresses(o.address);
    for (std::string address; std::getline(addresses, address, ',');) {
        (options.base.empty() ? options.base : options.more.emplace_back()) = "https://" + address;
    }
    options.keys          = o.keys;
    options.headers       = {"X-Host: " + o.host};
    options.n_connections = std::max(1, o.n_connections);
    return options;
}

void fail_request(const std::string & address, const std::string & what, const HttpResponse & r) {
    const std::string head = "hub " + address + ": " + what + ": ";
    if (r.refused_key) {
        throw KeyError(
            head + "the server has another key (" + r.error +
            "); check the address, and that hosts.txt belongs to this run"
        );
    }
    if (r.status == 0) {
        throw StoreError(
            head + r.error +
            "; check that the hub runs, that its port is open, and that all machines have "
            "the same key in hosts.txt"
        );
    }
    const std::string said = one_line(r.text().substr(0, 300));
    throw StoreError(head + format("status %d ", r.status) + (said.empty() ? r.error : said));
}

static uint64_t number(const std::string & text) {
    const auto value = parse_number(text);
    if (!value) {
        throw StoreError("hub: an answer without a valid number; use the same version on all hosts"
        );
    }
    return *value;
}

namespace {

class HttpStore : public Store {
public:
    explicit HttpStore(const HttpStoreOptions & o)
        : options_(o), paths_(o.keys->run), client_(http_options(o)) {
        options_.range_bytes = std::clamp<size_t>(o.range_bytes, kMinRange, kMaxRange);
        if (o.feed) {
            feed_.emplace(o.keys->run, options_.n_connections);
            feed_->start(client_);
        }
    }

    // The hub never replaces a value.
    bool put(const std::string & key, std::span<const uint8_t> value, bool) override {
        check_key(key);
        keep(key, value);
        return send(key, value);
    }
    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        check_key(key);
        std::optional<Bytes> value = find(key, wait);
        if (const auto closed = value ? paths_.parse_commit(key) : std::nullopt) {
            const std::lock_guard lock(kept_mutex_);
            std::erase_if(kept_, [&](const auto & kept) {
                return paths_.parse_bulk(kept.first)->id.index <= *closed;
            });
        }
        return value;
    }

    std::vector<std::string> list(const std::string & prefix) override {
        std::vector<std::string> keys;
        for (;;) {
            HttpRequest request;
            request.path = "/list?prefix=" + prefix;
            request.path += keys.empty() ? "" : "&after=" + keys.back();
            request.max_bytes    = kMaxList;
            const HttpResponse r = perform(request);
            if (r.status != 200) {
                fail_request(options_.address, "list " + prefix, r);
            }
            std::istringstream lines(r.text());
            std::string        key;
            while (std::getline(lines, key)) {
                keys.push_back(key);
            }
            if (r.header("x-more") != "1") {
                return keys;
            }
        }
    }

    void remove(const std::string & key) override {
        check_key(key);
        throw Error("a hub removes old values itself");
    }

private:
    bool send(const std::string & key, std::span<const uint8_t> value) {
        if (value.size() > 2 * kMinRange) {
            return put_ranges(key, value);
        }
        HttpRequest request;
        request.method       = "PUT";
        request.path         = "/v/" + key;
        request.body         = value;
        request.has_body     = true;
        const HttpResponse r = perform(request);
        return outcome("put " + key, r);
    }

    std::optional<Bytes> find(const std::string & key, std::chrono::milliseconds wait) {
        const auto end = std::chrono::steady_clock::now() + wait;
        while (feed_ && feed_->covers(key)) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                end - std::chrono::steady_clock::now()
            );
            auto value = feed_->find(key, std::min(left, kFeedWait), kFeedRest);
            if (!value) {
                value = fetch_missing(key);
            }
            if (!value && !(left < kFeedWait && feed_->is_to_come(key))) {
                value = fetch(key, {});
            }
            if (value || std::chrono::steady_clock::now() >= end) {
                return value;
            }
        }
        return fetch(key, wait);
    }

    // A hub acknowledges messages before they are on its disk: if it restarts, we put those again whose rounds
    // are open. A closed round must not be closed a second time, by a hub that has gone back to an older copy.
    void keep(const std::string & key, std::span<const uint8_t> value) {
        const auto bulk = paths_.parse_bulk(key);
        if (bulk && bulk->is_message) {
            const std::lock_guard lock(kept_mutex_);
            kept_.emplace_back(key, Bytes(value.begin(), value.end()));
            if (kept_.size() > kKeptMessages) {
                kept_.pop_front();
            }
        }
    }

    HttpResponse perform(const HttpRequest & request) {
        HttpResponse                              r    = client_.perform(request);
        const std::string                         boot = r.header("x-boot");
        std::deque<std::pair<std::string, Bytes>> again;
        {
            const std::lock_guard lock(kept_mutex_);
            const std::string     before = boot.empty() ? boot : std::exchange(boot_, boot);
            if (!before.empty() && before != boot) {
                again = kept_;
            }
        }
        for (const auto & [key, value] : again) {
            send(key, value);
        }
        return r;
    }

    // Requests the ranges that are late on the feed.
    std::optional<Bytes> fetch_missing(const std::string & key) {
        const std::vector<Feed::Gap> gaps = feed_->missing(key);
        std::vector<Bytes>           buffers;
        std::vector<HttpRequest>     requests;
        for (const Feed::Gap & gap : gaps) {
            buffers.emplace_back(gap.n);
            HttpRequest request;
            request.path = "/v/" + key +
                           format(
                               "?offset=%llu&length=%llu", (unsigned long long) gap.offset,
                               (unsigned long long) gap.n
                           );
            request.into  = buffers.back();  // its memory does not move when `buffers` grows
            request.hedge = gap.n <= kMaxHedged;
            requests.push_back(std::move(request));
        }
        const auto responses = client_.perform_all(requests);
        for (size_t i = 0; i < gaps.size(); ++i) {
            if (responses[i].status == 200) {
                feed_->add({key, gaps[i].size, gaps[i].offset, buffers[i]});
            }
        }
        return gaps.empty() ? std::nullopt : feed_->find(key, {}, {});
    }

    std::optional<Bytes> fetch(const std::string & key, std::chrono::milliseconds wait) {
        const auto end = std::chrono::steady_clock::now() + wait;
        for (;;) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                end - std::chrono::steady_clock::now()
            );
            HttpRequest request;
            request.wait      = std::clamp(left, std::chrono::milliseconds(0), kPoll);
            request.max_bytes = kFirstBytes;
            request.path      = "/v/" + key + format("?length=%zu", kFirstBytes);
            if (request.wait.count() > 0) {
                request.path += format("&wait=%lld", (long long) request.wait.count());
            }
            HttpResponse r = perform(request);
            if (r.status == 200) {
                const uint64_t size = number(r.header("x-size"));
                if (size == r.body.size()) {
                    return std::move(r.body);
                }
                if (std::optional<Bytes> value = get_rest(key, size, r)) {
                    return value;
                }
                continue;  // removed meanwhile
            }
            if (r.status != 404) {
                fail_request(options_.address, "get " + key, r);
            }
            if (std::chrono::steady_clock::now() >= end) {
                return std::nullopt;
            }
        }
    }

    // One range per connection, within limits.
    size_t range_bytes(size_t size) const {
        const size_t n = size_t(std::max(1, options_.n_connections));
        return std::clamp((size + n - 1) / n, kMinRange, options_.range_bytes);
    }

    bool outcome(const std::string & what, const HttpResponse & r) const {
        if (r.status != 200 && r.status != 201 && r.status != 412) {
            fail_request(options_.address, what, r);
        }
        return r.status != 412;
    }

    bool put_ranges(const std::string & key, std::span<const uint8_t> value) {
        const size_t      n_bytes = range_bytes(value.size());
        const Key32       random  = new_secret();
        const std::string upload  = to_base64(std::span(random).first(15));
        const std::string query =
            "?upload=" + upload + format("&part_bytes=%zu&size=%zu", n_bytes, value.size());
        std::vector<uint64_t> ranges((value.size() + n_bytes - 1) / n_bytes);
        std::iota(ranges.begin(), ranges.end(), 0);
        for (int attempt = 0; attempt < kRestarts; attempt++) {
            std::vector<HttpRequest> requests;
            for (const uint64_t i : ranges) {
                HttpRequest request;
                request.method = "PUT";
                request.path   = "/v/" + key + query + format("&part=%llu", (unsigned long long) i);
                request.body =
                    value.subspan(i * n_bytes, std::min(n_bytes, value.size() - i * n_bytes));
                request.has_body = true;
                request.bulk     = true;
                request.hedge    = request.body.size() <= kMaxHedged;
                requests.push_back(std::move(request));
            }
            for (const HttpResponse & r : client_.perform_all(requests)) {
                if (r.status != 202) {
                    return outcome("put " + key, r);  // the last range, or a failure
                }
            }
            ranges = missing(key, query);  // the hub has restarted and forgotten some
        }
        throw StoreError(
            "hub " + options_.address + ": put " + key + ": it restarts all the time; see its log"
        );
    }

    std::vector<uint64_t> missing(const std::string & key, const std::string & query) {
        HttpRequest request;
        request.path         = "/missing/" + key + query;
        const HttpResponse r = client_.perform(request);
        if (r.status != 200) {
            fail_request(options_.address, "put " + key, r);
        }
        std::vector<uint64_t> ranges;
        std::istringstream    lines(r.text());
        std::string           line;
        while (std::getline(lines, line)) {
            ranges.push_back(number(line));
        }
        return ranges;
    }

    std::optional<Bytes>
    get_rest(const std::string & key, uint64_t size, const HttpResponse & first) {
        if (size > options_.max_value_bytes || first.body.size() > size) {
            throw StoreError(
                "hub " + options_.address + ": get " + key +
                format(": %llu bytes are more than the limit", (unsigned long long) size)
            );
        }
        Bytes value(size);
        std::copy(first.body.begin(), first.body.end(), value.begin());
        std::vector<HttpRequest> requests;
        const size_t             n_bytes = range_bytes(size - first.body.size());
        for (size_t at = first.body.size(); at < size; at += n_bytes) {
            HttpRequest  request;
            const size_t n = std::min<size_t>(n_bytes, size - at);
            request.path   = "/v/" + key + format("?offset=%zu&length=%zu", at, n) +
                           "&version=" + first.header("x-version");
            request.into = std::span(value).subspan(at, n);
            request.bulk = true;
            requests.push_back(std::move(request));
        }
        for (const HttpResponse & r : client_.perform_all(requests)) {
            if (r.status == 404) {
                return std::nullopt;
            }
            if (r.status != 200) {
                fail_request(options_.address, "get " + key, r);
            }
        }
        return value;
    }

    HttpStoreOptions                          options_;
    RunPaths                                  paths_;
    std::optional<Feed>                       feed_;
    std::mutex                                kept_mutex_;
    std::string                               boot_;  // changes when the hub restarts
    std::deque<std::pair<std::string, Bytes>> kept_;  // our last messages
    HttpClient                                client_;
};

}  // namespace

// More are faster on a lossy link; with many hosts each gets enough to do on a few.
int connections_of(size_t n_hosts) {
    return std::clamp(80 / std::max(1, static_cast<int>(n_hosts)), 4, 16);
}

std::unique_ptr<Store> make_http_store(const HttpStoreOptions & options) {
    return std::make_unique<HttpStore>(options);
}

}  // namespace gt
