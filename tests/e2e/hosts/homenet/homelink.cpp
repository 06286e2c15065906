// homelink — a home's internet line between two network namespaces, without tc netem.
//
//   homelink NS_A DEV_A NS_B DEV_B up_mbit down_mbit one_way_ms loss_% [queue_ms] [jitter_ms] [seed]
//
// One TUN device in each namespace. Each direction: random loss, a queue that drops at its end,
// sending at the line's rate, a fixed delay. SIGSTOP is an outage, SIGTERM prints counts.
// Read next: homenet.sh, which builds a whole net of homes from it.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <random>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <vector>

namespace {

struct Line {
    double  up_mbit, down_mbit, one_way_ms, loss, queue_ms, jitter_ms;
    int64_t seed;
};

struct Packet {
    int64_t           due_ns;
    std::vector<char> bytes;
};

struct Direction {
    int     in = -1, out = -1;
    double  ns_per_byte = 0;
    int64_t free_at = 0, last_due = 0;  // when the line is free; packets keep their order
    std::deque<Packet> queue;
    uint64_t           n_packets = 0, n_bytes = 0, n_lost = 0, n_dropped = 0;
};

volatile std::sig_atomic_t stopping = 0;

int64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

[[noreturn]] void fail(const std::string & what) {
    std::fprintf(stderr, "homelink: %s: %s\n", what.c_str(), std::strerror(errno));
    std::exit(1);
}

int open_tun(const char * space, const char * device, int home) {
    const std::string path = std::string("/run/netns/") + space;
    const int         fd   = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        fail(path);
    }
    close(fd);
    const int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ifreq     request{};
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
    if (tun < 0 || ioctl(tun, TUNSETIFF, &request) != 0) {
        fail("/dev/net/tun");
    }
    if (setns(home, CLONE_NEWNET) != 0) {
        fail("setns");
    }
    return tun;
}

class Link {
public:
    Link(int a, int b, const Line & line) : line_(line), random_(uint64_t(line.seed)) {
        directions_[0].in = directions_[1].out = a;
        directions_[0].out = directions_[1].in = b;
        directions_[0].ns_per_byte             = 8000.0 / line.up_mbit;
        directions_[1].ns_per_byte             = 8000.0 / line.down_mbit;
    }

    void run() {
        while (!stopping) {
            int64_t next = now_ns() + 1'000'000'000LL;
            for (Direction & d : directions_) {
                deliver(d, now_ns());
                if (!d.queue.empty()) {
                    next = std::min(next, d.queue.front().due_ns);
                }
            }
            const int64_t  wait = std::max<int64_t>(next - now_ns(), 0);
            const timespec timeout{time_t(wait / 1'000'000'000LL), long(wait % 1'000'000'000LL)};
            pollfd fds[2] = {{directions_[0].in, POLLIN, 0}, {directions_[1].in, POLLIN, 0}};
            ppoll(fds, 2, &timeout, nullptr);
            for (Direction & d : directions_) {
                accept(d);
            }
        }
        for (int i = 0; i < 2; i++) {
            const Direction & d = directions_[i];
            std::fprintf(
                stderr, "%s packets=%llu bytes=%llu lost=%llu dropped=%llu\n", i ? "down" : "up",
                (unsigned long long) d.n_packets, (unsigned long long) d.n_bytes,
                (unsigned long long) d.n_lost, (unsigned long long) d.n_dropped
            );
        }
    }

private:
    static void deliver(Direction & d, int64_t now) {
        while (!d.queue.empty() && d.queue.front().due_ns <= now) {
            const std::vector<char> & bytes = d.queue.front().bytes;
            if (write(d.out, bytes.data(), bytes.size()) < 0 && errno != EAGAIN && errno != EIO &&
                errno != EINVAL) {
                std::fprintf(stderr, "homelink: write: %s\n", std::strerror(errno));
            }
            d.queue.pop_front();
        }
    }

    void accept(Direction & d) {
        char buffer[65536];
        for (int k = 0; k < 64; k++) {
            const ssize_t n = read(d.in, buffer, sizeof buffer);
            if (n <= 0) {
                return;
            }
            const int64_t now = now_ns();
            if (uniform_(random_) < line_.loss) {
                d.n_lost++;
                continue;
            }
            const int64_t start = std::max(now, d.free_at);
            if (double(start - now) > line_.queue_ms * 1e6) {
                d.n_dropped++;
                continue;
            }
            d.free_at    = start + int64_t(double(n) * d.ns_per_byte);
            double delay = line_.one_way_ms * 1e6;
            delay += line_.jitter_ms > 0 ? uniform_(random_) * line_.jitter_ms * 1e6 : 0;
            d.last_due = std::max(d.last_due, d.free_at + int64_t(delay));
            d.queue.push_back({d.last_due, std::vector<char>(buffer, buffer + n)});
            d.n_packets++;
            d.n_bytes += uint64_t(n);
        }
    }

    Line                                   line_;
    Direction                              directions_[2];
    std::mt19937_64                        random_;
    std::uniform_real_distribution<double> uniform_{0, 1};
};

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 9) {
        std::fprintf(
            stderr, "usage: homelink NS_A DEV_A NS_B DEV_B up_mbit down_mbit one_way_ms loss_%% "
                    "[queue_ms] [jitter_ms] [seed]\n"
        );
        return 2;
    }
    const auto number = [&](int i, double otherwise) {
        return argc > i ? std::atof(argv[i]) : otherwise;
    };
    const Line line{number(5, 0),   number(6, 0),  number(7, 0),          number(8, 0) / 100,
                    number(9, 200), number(10, 0), int64_t(number(11, 1))};
    const int  home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    const int  a = open_tun(argv[1], argv[2], home), b = open_tun(argv[3], argv[4], home);
    std::signal(SIGINT, [](int) { stopping = 1; });
    std::signal(SIGTERM, [](int) { stopping = 1; });
    prctl(PR_SET_TIMERSLACK, 20000);
    Link(a, b, line).run();
    return 0;
}
