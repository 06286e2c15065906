// comm/store/store-s3.cpp — any S3-compatible bucket as a store.
//
// Keys are deterministic and nothing is listed in a loop, because buckets charge for it; waiting is
// polling with growing pauses. A value is sent and received by one request. Not all servers support
// If-None-Match: see probe_atomic_create.
// The workarounds for signing with libcurl 7.88 are in object().
#include "comm/http/http-client.h"
#include "comm/store/s3-settings.h"
#include "comm/store/s3-text.h"
#include "comm/store/store.h"

#include <algorithm>
#include <thread>

namespace gt {

namespace {

constexpr auto   kMinPause      = std::chrono::milliseconds(100);
constexpr auto   kMaxPause      = std::chrono::milliseconds(2000);
constexpr auto   kConflictPause = std::chrono::milliseconds(200);
constexpr int    kConflicts     = 5;
constexpr size_t kMaxList       = 16 << 20;   // bytes of one answer
constexpr size_t kMaxKeys       = 1'000'000;  // of one listing
constexpr size_t kMinBulk       = 64 * 1024;

class S3Store : public Store {
public:
    explicit S3Store(const S3Settings & settings)
        : settings_(settings), client_(http_options(settings)) {}

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        check_key(key);
        HttpRequest request = object("PUT", key, "", value);
        if (if_absent) {
            request.headers.push_back("If-None-Match: *");
        }
        HttpResponse r = perform(request);
        for (int attempt = 0; if_absent && r.status == 409 && attempt < kConflicts; attempt++) {
            std::this_thread::sleep_for(kConflictPause);  // another writer is active
            r = perform(request);
        }
        if (if_absent && r.status == 501) {  // not supported: probe_atomic_create will detect it
            return put(key, value, false);
        }
        if (if_absent && (r.status == 412 || r.status == 409)) {
            const std::optional<Bytes> there = get(key, {});
            return there && std::equal(there->begin(), there->end(), value.begin(), value.end());
        }
        need(r, {200, 201, 204}, "put " + key);
        return true;
    }

    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        check_key(key);
        const auto end   = std::chrono::steady_clock::now() + wait;
        auto       pause = kMinPause;
        for (;;) {
            HttpRequest request = object("GET", key, "", {});
            request.max_bytes   = settings_.options.max_value_bytes;
            request.bulk        = true;
            HttpResponse r      = perform(request);
            if (r.status == 200) {
                return std::move(r.body);
            }
            need(r, {404}, "get " + key);
            const auto now = std::chrono::steady_clock::now();
            if (now >= end) {
                return std::nullopt;
            }
            std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, end - now));
            pause = std::min(pause * 3 / 2, kMaxPause);
        }
    }

    std::vector<std::string> list(const std::string & prefix) override {
        std::vector<std::string> keys;
        std::string              next;
        do {
            // signed as it is: sorted by name
            std::string query = next.empty() ? "" : "continuation-token=" + encoded(next) + "&";
            query += "list-type=2&prefix=" + encoded(settings_.prefix + prefix);
            HttpRequest request  = object("GET", "", query, {});
            request.max_bytes    = kMaxList;
            const HttpResponse r = perform(request);
            if (r.status == 404) {
                return {};
            }
            need(r, {200}, "list " + prefix);
            const std::string xml = r.text();
            for (const std::string & found : xml_values(xml, "Key")) {
                if (found.starts_with(settings_.prefix) &&
                    valid_key(found.substr(settings_.prefix.size()))) {
                    keys.push_back(found.substr(settings_.prefix.size()));
                }
            }
            const auto more = xml_values(xml, "NextContinuationToken");
            next            = more.empty() ? "" : more[0];
        } while (!next.empty() && keys.size() < kMaxKeys);
        std::sort(keys.begin(), keys.end());
        return keys;
    }

    void remove(const std::string & key) override {
        check_key(key);
        need(perform(object("DELETE", key, "", {})), {200, 202, 204, 404}, "remove " + key);
    }

private:
    static HttpOptions http_options(const S3Settings & s) {
        HttpOptions options{s.options};
        options.base          = s.endpoint;
        options.n_connections = std::max(1, s.options.n_connections);
        options.region        = s.region;
        options.access_key    = s.access_key;
        options.secret_key    = s.secret_key;
        if (!s.session_token.empty()) {
            options.headers.push_back("x-amz-security-token: " + s.session_token);
        }
        return options;
    }

    // An empty key is the bucket itself. `query` must be sorted and encoded: it is signed as given.
    HttpRequest object(
        const std::string &      method,
        const std::string &      key,
        const std::string &      query,
        std::span<const uint8_t> body
    ) const {
        HttpRequest request;
        request.method = method;
        request.path   = "/" + settings_.bucket + (key.empty() ? "" : "/" + settings_.prefix + key);
        request.path += query.empty() ? "" : "?" + query;
        request.body     = body;
        request.has_body = method == "PUT";
        request.bulk     = body.size() > kMinBulk;
        // libcurl signs this header but does not send it; two of five servers require it
        request.headers.push_back("x-amz-content-sha256: " + sha256_hex(body));
        return request;
    }

    HttpResponse perform(const HttpRequest & request) { return client_.perform(request); }

    std::string where() const {
        return "bucket " + settings_.endpoint + "/" + settings_.bucket + ": ";
    }

    void
    need(const HttpResponse & r, std::initializer_list<int> good, const std::string & what) const {
        if (std::find(good.begin(), good.end(), r.status) != good.end()) {
            return;
        }
        const std::string xml   = r.text();
        const auto        codes = xml_values(xml, "Code");
        const std::string code  = codes.empty() ? "" : codes[0];
        std::string       next  = "; check the address, the bucket and the network";
        if (code == "RequestTimeTooSkewed") {
            next = "; this machine's clock is wrong: set it (timedatectl set-ntp true)";
        } else if (r.status == 401 || r.status == 403 || r.status == 400) {
            next = "; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the region, and that this "
                   "machine's clock is right";
        } else if (r.status == 404) {
            next = "; create the bucket first";
        }
        throw StoreError(
            where() + what + ": " + (r.status ? format("status %d ", r.status) + code : r.error) +
            next
        );
    }

    S3Settings settings_;
    HttpClient client_;
};

}  // namespace

std::unique_ptr<Store> make_s3_store(const S3StoreOptions & options) {
    return std::make_unique<S3Store>(s3_settings(options));
}

}  // namespace gt
