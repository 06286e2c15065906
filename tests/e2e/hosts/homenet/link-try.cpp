// link-try — one host behind a home link: puts and gets values at a hub and prints the speed.
//
//   link-try --serve HOSTS PATH TCP           the hub, until killed
//   link-try HOSTS NAME TCP MEGABYTES ROUNDS  checks the link, then puts and gets
//
// TCP is the congestion control of its sockets (homes have cubic). Used by home-link.sh.
#include "comm/http/http-client.h"
#include "comm/hub/hub.h"
#include "comm/run/hosts.h"
#include "comm/run/link-check.h"
#include "tests/comm/some-bytes.h"

#include <csignal>
#include <cstdio>
#include <unistd.h>

using namespace gt;

static double seconds(const auto & work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

static void serve(const Hosts & hosts, const std::string & path, const std::string & tcp) {
    HubOptions options;
    options.address    = hosts.hub()->address;
    options.path       = path;
    options.keys       = hosts.keys;
    options.congestion = tcp;
    const Hub hub(options);
    for (;;) {
        ::pause();
    }
}

static void try_line(const Hosts & hosts, char ** argv) {
    HttpStoreOptions options;
    options.address    = hosts.hub()->address;
    options.keys       = &hosts.keys;
    options.host       = argv[2];
    options.congestion = argv[3];
    options.n_connections =
        std::getenv("LINE_CONNECTIONS") ? std::atoi(std::getenv("LINE_CONNECTIONS")) : 8;
    options.counters     = std::make_shared<LinkCounters>();
    const LinkCheck line = check_link(options);
    std::printf("%s: %s", options.host.c_str(), describe(line).c_str());
    const auto   store = make_http_store(options);
    const size_t n     = size_t(std::atof(argv[4]) * 1e6);
    for (int r = 0; r < std::atoi(argv[5]); r++) {
        const std::string key   = options.host + "/" + std::to_string(r);
        const Bytes       value = some_bytes(n, uint64_t(r));
        bool              same  = false;
        const double      up    = seconds([&] { store->put(key, value); });
        const double      down  = seconds([&] { same = store->get(key) == value; });
        if (!same) {
            throw Error("link-try: the value was changed on the way");
        }
        std::printf(
            "%s: round %d: put %.2f s (%.1f Mbit/s), get %.2f s (%.1f Mbit/s)\n",
            options.host.c_str(), r, up, 8e-6 * double(n) / up, down, 8e-6 * double(n) / down
        );
        std::fflush(stdout);
    }
    std::printf(
        "%s: done, %llu retries, %llu connections\n", options.host.c_str(),
        (unsigned long long) options.counters->n_retries,
        (unsigned long long) options.counters->n_connects
    );
}

int main(int argc, char ** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    try {
        if (argc == 5 && std::string(argv[1]) == "--serve") {
            serve(read_hosts(argv[2]), argv[3], argv[4]);
        } else if (argc == 6) {
            try_line(read_hosts(argv[1]), argv);
        } else {
            std::fprintf(stderr, "usage: see the head of link-try.cpp\n");
            return 2;
        }
    } catch (const Error & error) {
        std::fprintf(stderr, "link-try: %s\n", error.what());
        return 1;
    }
    return 0;
}
