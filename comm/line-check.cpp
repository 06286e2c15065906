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
static double measure_speed(HttpClient & client, const HttpStoreOptions & options, bool up) {
    const size_t n_requests = size_t(std::max(1, options.n_connections));
    auto         start      = Clock::now();
    double       best       = 0;
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
        if (seconds_since(start) > (round < 5 ? 3.0 : 1.0)) {
            return best;
        }
    }
}

LineCheck check_line(const HttpStoreOptions & options) {
    HttpClient client(http_options(options));
    LineCheck  line;
    measure_delay(client, options.address, line);
    line.down_mbit = measure_speed(client, options, false);
    line.up_mbit   = measure_speed(client, options, true);
    return line;
}

std::string describe(const LineCheck & line) {
    std::string out = format(
        "the hub answers in %.0f ms; %.1f Mbit/s up, %.1f Mbit/s down\n", line.delay_ms,
        line.up_mbit, line.down_mbit
    );
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
