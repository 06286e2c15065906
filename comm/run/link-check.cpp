// comm/run/link-check.cpp — measures delay with small requests and speed with large concurrent ones.
#include "comm/run/link-check.h"

#include "comm/store/store-http.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace gt {

using Clock = std::chrono::steady_clock;

static constexpr int    kDelayTries = 6;
static constexpr size_t kMinBytes   = 4 * 1024;
static constexpr size_t kMaxBytes   = 512 * 1024;
static constexpr double kMaxClock_s = 30;

static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

static double wall_s() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

static void measure_delay(HttpClient & client, const std::string & address, LinkCheck & link) {
    link.delay_ms = 1e9;
    for (int i = 0; i < kDelayTries; i++) {  // the first one connects, too
        const double       sent  = wall_s();
        const auto         begin = Clock::now();
        const HttpResponse r     = client.perform(HttpRequest{.path = "/time"});
        const double       took  = seconds_since(begin);
        if (r.status != 200) {
            fail_request(address, "check", r);
        }
        std::istringstream words(r.text());
        double             hub_ms = 0;
        words >> hub_ms >> link.boot >> link.version;
        if (took * 1e3 < link.delay_ms) {
            link.delay_ms = took * 1e3;
            link.clock_s  = hub_ms / 1e3 - (sent + took / 2);
        }
    }
}

// Sends more and more, for a second: a slow link is not blocked for long, and a fast one is not
// measured by its first packets. The best round counts, because of lost packets.
static double
measure_speed(HttpClient & client, const HttpStoreOptions & options, bool up, uint64_t max_bytes) {
    const size_t n_requests = size_t(std::max(1, options.n_connections));
    auto         start      = Clock::now();
    double       best       = 0;
    uint64_t     moved      = 0;
    for (size_t n = kMinBytes, round = 0;; n = std::min(2 * n, kMaxBytes), round++) {
        const Bytes              body(up ? n : 0);
        std::vector<HttpRequest> requests(n_requests);
        for (HttpRequest & request : requests) {
            request.method    = up ? "PUT" : "GET";
            request.path      = up ? "/speed" : format("/speed?bytes=%zu", n);
            request.body      = body;
            request.has_body  = up;
            request.max_bytes = n;
            request.bulk      = true;
        }
        const auto begin = Clock::now();
        for (const HttpResponse & r : client.perform_all(requests)) {
            if (r.status != 200) {
                fail_request(options.address, "check", r);
            }
        }
        const double s = seconds_since(begin);
        if (round == 0) {
            start = Clock::now();  // the first round opens the connections
            continue;
        }
        // small rounds measure the delay, or one burst
        const double mbit = 8e-6 * double(n * n_requests) / std::max(s, 1e-6);
        best              = round <= 3 ? mbit : std::max(best, mbit);
        moved += n * n_requests;
        if (seconds_since(start) > (round < 5 ? 3.0 : 1.0) || moved > max_bytes) {
            return best;
        }
    }
}

LinkCheck check_link(const HttpStoreOptions & options, uint64_t max_bytes) {
    HttpClient client(http_options(options));
    LinkCheck  link;
    measure_delay(client, options.address, link);
    link.down_mbit = measure_speed(client, options, false, max_bytes);
    link.up_mbit   = measure_speed(client, options, true, max_bytes);
    return link;
}

LinkCheck check_store(Store & store, const std::string & key) {
    LinkCheck  link;
    const auto try_value = [&](size_t n, double & put_s, double & get_s) {
        const Bytes       value(n, 'x');
        const std::string name  = key + format("/%zu", n);
        auto              begin = Clock::now();
        store.put(name, value);
        put_s = seconds_since(begin);
        begin = Clock::now();
        if (store.get(name) != value) {
            throw StoreError(
                "the store returned another value than was put; check that all machines use the "
                "same folder or bucket"
            );
        }
        get_s = seconds_since(begin);
        store.remove(name);
    };
    double put_s = 0, get_s = 0, small_put_s = 0, small_get_s = 0;
    try_value(16, small_put_s, small_get_s);
    try_value(kMaxBytes, put_s, get_s);
    link.delay_ms  = 1e3 * small_get_s;
    link.up_mbit   = 8e-6 * kMaxBytes / std::max(put_s, 1e-6);
    link.down_mbit = 8e-6 * kMaxBytes / std::max(get_s, 1e-6);
    return link;
}

std::string describe(const LinkCheck & link) {
    const bool  is_hub = !link.version.empty();
    std::string out    = format(
           "the %s answers in %.0f ms; %.1f Mbit/s up, %.1f Mbit/s down\n", is_hub ? "hub" : "store",
           link.delay_ms, link.up_mbit, link.down_mbit
       );
    if (!is_hub) {
        return out;
    }
    if (std::abs(link.clock_s) <= kMaxClock_s && link.version == kVersion) {
        out += format("clocks agree within %.1f s, versions are equal\n", std::abs(link.clock_s));
    }
    if (std::abs(link.clock_s) > kMaxClock_s) {
        out += format(
            "this machine's clock is %.0f s %s; set it (timedatectl set-ntp true)\n",
            std::abs(link.clock_s), link.clock_s > 0 ? "behind the hub's" : "ahead of the hub's"
        );
    }
    if (link.version != kVersion) {
        out += "the hub runs version " + link.version + ", this is " + kVersion +
               "; use the same on all machines\n";
    }
    return out;
}

}  // namespace gt
