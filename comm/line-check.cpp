// comm/line-check.cpp — delay from small requests, speed from large ones, side by side.
#include "comm/line-check.h"

#include "comm/store-http.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace gt {

using Clock = std::chrono::steady_clock;

static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

static double wall_s() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

static void measure_delay(HttpClient & client, const std::string & address, LineCheck & line) {
    line.delay_ms = 1e9;
    for (int i = 0; i < 6; i++) {  // the first one also connects
        const double       sent  = wall_s();
        const auto         begin = Clock::now();
        const HttpResponse r     = client.perform(HttpRequest{.path = "/time"});
        const double       took  = seconds_since(begin);
        if (r.status != 200) {
            fail_request(address, "check", r);
        }
        std::istringstream words(r.text());
        double             hub_ms = 0;
        words >> hub_ms >> line.boot >> line.version;
        if (took * 1e3 < line.delay_ms) {
            line.delay_ms = took * 1e3;
            line.clock_s  = hub_ms / 1e3 - (sent + took / 2);
        }
    }
}

// Larger and larger, for a second: slow lines are not held up for long, fast ones not judged by
// their first packets. The best round counts: one lost packet in a small one says little.
static double
measure_speed(HttpClient & client, const HttpStoreOptions & options, bool up, uint64_t max_bytes) {
    const size_t n_requests = size_t(std::max(1, options.n_connections));
    auto         start      = Clock::now();
    double       best       = 0;
    uint64_t     moved      = 0;
    for (size_t n = 4 * 1024, round = 0;; n = std::min<size_t>(2 * n, 512 * 1024), round++) {
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
            start = Clock::now();  // that one opened the connections
            continue;
        }
        // small rounds are mostly waiting, or one burst
        const double mbit = 8e-6 * double(n * n_requests) / std::max(s, 1e-6);
        best              = round <= 3 ? mbit : std::max(best, mbit);
        moved += n * n_requests;
        if (seconds_since(start) > (round < 5 ? 3.0 : 1.0) || moved > max_bytes) {
            return best;
        }
    }
}

LineCheck check_line(const HttpStoreOptions & options, uint64_t max_bytes) {
    HttpClient client(http_options(options));
    LineCheck  line;
    measure_delay(client, options.address, line);
    line.down_mbit = measure_speed(client, options, false, max_bytes);
    line.up_mbit   = measure_speed(client, options, true, max_bytes);
    return line;
}

LineCheck check_store(Store & store, const std::string & key) {
    LineCheck  line;
    const auto try_value = [&](size_t n, double & put_s, double & get_s) {
        const Bytes       value(n, 'x');
        const std::string name  = key + format("/%zu", n);
        auto              begin = Clock::now();
        store.put(name, value);
        put_s = seconds_since(begin);
        begin = Clock::now();
        if (store.get(name) != value) {
            throw StoreError(
                "the store gives back something else than was put there; is it one that "
                "all machines write to directly?"
            );
        }
        get_s = seconds_since(begin);
        store.remove(name);
    };
    constexpr size_t kLarge = 512 * 1024;
    double           put_s = 0, get_s = 0, small_put_s = 0, small_get_s = 0;
    try_value(16, small_put_s, small_get_s);
    try_value(kLarge, put_s, get_s);
    line.delay_ms  = 1e3 * small_get_s;
    line.up_mbit   = 8e-6 * kLarge / std::max(put_s, 1e-6);
    line.down_mbit = 8e-6 * kLarge / std::max(get_s, 1e-6);
    return line;
}

std::string describe(const LineCheck & line) {
    const bool  is_hub = !line.version.empty();
    std::string out    = format(
           "the %s answers in %.0f ms; %.1f Mbit/s up, %.1f Mbit/s down\n", is_hub ? "hub" : "store",
           line.delay_ms, line.up_mbit, line.down_mbit
       );
    if (!is_hub) {
        return out;
    }
    if (std::abs(line.clock_s) <= 30 && line.version == kVersion) {
        out += format("clocks agree within %.1f s, and so do versions\n", std::abs(line.clock_s));
    }
    if (std::abs(line.clock_s) > 30) {
        out += format(
            "this machine's clock is %.0f s %s; set it (timedatectl set-ntp true)\n",
            std::abs(line.clock_s), line.clock_s > 0 ? "behind the hub's" : "ahead of the hub's"
        );
    }
    if (line.version != kVersion) {
        out += "the hub runs version " + line.version + ", this is " + kVersion +
               "; use the same on all machines\n";
    }
    return out;
}

}  // namespace gt
