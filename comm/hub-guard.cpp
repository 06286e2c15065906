// comm/hub-guard.cpp — the hub's log, its patience with strangers, and its limits per host.
#include "comm/hub-guard.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <netinet/in.h>
#include <sys/socket.h>

namespace gt {

static constexpr size_t kLogBytes  = 8 << 20;
static constexpr size_t kMaxFaults = 64;

uint64_t wall_ms() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return uint64_t(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

HubLog::HubLog(const std::string & folder, bool quiet)
    : path_(folder + "/hub.log"), quiet_(quiet), file_(std::fopen(path_.c_str(), "ae")) {
    if (!file_) {
        throw Error(path_ + ": can't be written; check the folder and its rights");
    }
    std::error_code failed;
    bytes_ = std::filesystem::file_size(path_, failed);
}

HubLog::~HubLog() {
    if (file_) {
        std::fclose(file_);
    }
}

void HubLog::note(const std::string & text) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::time_t           now = std::time(nullptr);
    std::tm                     utc{};
    ::gmtime_r(&now, &utc);
    char time[32];
    std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    bool is_written = false;  // a full disk must not hide that it is full
    if (file_) {
        const int n = std::fprintf(file_, "%s %s\n", time, text.c_str());
        is_written  = std::fflush(file_) == 0;
        bytes_ += size_t(std::max(n, 0));
    }
    if (!quiet_ || !is_written) {
        std::fprintf(stderr, "hub %s %s\n", time, text.c_str());
    }
    if (file_ && bytes_ > kLogBytes) {
        std::fclose(file_);
        std::rename(path_.c_str(), (path_ + ".1").c_str());
        file_  = std::fopen(path_.c_str(), "ae");  // a full disk: the hub goes on without a log
        bytes_ = 0;
    }
}

void HubLog::fault(const std::string & text) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        // the same again and again is said every ten seconds
        const uint64_t now = wall_ms();
        if (!faults_.empty() && faults_.back().text == text &&
            now - faults_.back().time_ms < 10'000) {
            return;
        }
        faults_.push_back({now, text});
        if (faults_.size() > kMaxFaults) {
            faults_.pop_front();
        }
    }
    note(text);
}

std::vector<HubLog::Fault> HubLog::faults() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return {faults_.begin(), faults_.end()};
}

static std::string peer_of(const SSL * ssl) {
    sockaddr_storage address{};
    socklen_t        size                   = sizeof address;
    char             text[INET6_ADDRSTRLEN] = "?";
    if (::getpeername(SSL_get_fd(ssl), reinterpret_cast<sockaddr *>(&address), &size) == 0) {
        if (address.ss_family == AF_INET) {
            const auto * v4 = reinterpret_cast<const sockaddr_in *>(&address);
            ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
        } else if (address.ss_family == AF_INET6) {
            const auto * v6 = reinterpret_cast<const sockaddr_in6 *>(&address);
            ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
        }
    }
    return text;
}

// OpenSSL finds its way back to the guard through these two slots.
static int guard_slot() {
    static const int slot = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return slot;
}

static int session_slot(CRYPTO_EX_free * on_free) {
    static const int slot = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, on_free);
    return slot;
}

HandshakeGuard::HandshakeGuard(SSL_CTX * context, HubLog & log) : log_(log) {
    SSL_CTX_set_ex_data(context, guard_slot(), this);
    session_slot(&HandshakeGuard::on_free);
    SSL_CTX_set_info_callback(context, &HandshakeGuard::on_info);
}

void HandshakeGuard::on_info(const SSL * ssl, int where, int) {
    auto * guard =
        static_cast<HandshakeGuard *>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), guard_slot()));
    if (where & SSL_CB_HANDSHAKE_START) {
        const std::string           from = peer_of(ssl);
        std::lock_guard<std::mutex> lock(guard->mutex_);
        guard->pending_.try_emplace(ssl, Pending{from, std::chrono::steady_clock::now()});
        SSL_set_ex_data(const_cast<SSL *>(ssl), session_slot(nullptr), guard);
    } else if (where & SSL_CB_HANDSHAKE_DONE) {
        std::lock_guard<std::mutex> lock(guard->mutex_);
        guard->pending_.erase(ssl);
    }
}

// A connection goes away; one that is still pending has not shown the key.
void HandshakeGuard::on_free(void * parent, void * ptr, CRYPTO_EX_DATA *, int, long, void *) {
    auto * guard = static_cast<HandshakeGuard *>(ptr);
    if (!guard) {
        return;
    }
    std::string from;
    {
        std::lock_guard<std::mutex> lock(guard->mutex_);
        const auto                  found = guard->pending_.find(static_cast<SSL *>(parent));
        if (found == guard->pending_.end()) {
            return;
        }
        from = found->second.from;
        guard->pending_.erase(found);
        const uint64_t now = wall_ms();
        if (guard->last_noted_.size() > 1000) {
            guard->last_noted_.clear();
        }
        uint64_t & last = guard->last_noted_[from];
        if (now - last < 1000) {
            return;
        }
        last = now;
    }
    guard->log_.fault("refused " + from + ": no handshake with this run's key");
}

void HandshakeGuard::end_slow(std::chrono::milliseconds limit) {
    const auto                  now = std::chrono::steady_clock::now();
    std::lock_guard<std::mutex> lock(mutex_);  // on_free waits for it: the socket is still its own
    for (const auto & [ssl, pending] : pending_) {
        if (now - pending.since > limit) {
            ::shutdown(SSL_get_fd(ssl), SHUT_RDWR);
        }
    }
}

HostLimits::HostLimits(uint64_t bytes_s, uint64_t requests_s, int max_hosts)
    : bytes_s_(double(bytes_s)), requests_s_(double(requests_s)), max_hosts_(size_t(max_hosts)) {}

HostLimits::Answer HostLimits::allow(const std::string & host, uint64_t bytes) {
    const auto                  now = std::chrono::steady_clock::now();
    std::lock_guard<std::mutex> lock(mutex_);
    auto                        found = hosts_.find(host);
    if (found == hosts_.end()) {
        if (hosts_.size() >= max_hosts_) {
            return Answer::too_many_hosts;
        }
        found = hosts_.emplace(host, Bucket{2 * bytes_s_, 2 * requests_s_, now}).first;
    }
    Bucket &     bucket = found->second;
    const double s      = std::chrono::duration<double>(now - bucket.last).count();
    bucket.last         = now;
    bucket.bytes        = std::min(bucket.bytes + s * bytes_s_, 2 * bytes_s_);
    bucket.requests     = std::min(bucket.requests + s * requests_s_, 2 * requests_s_);
    // a single large transfer may go into debt: it is the next that waits
    if (bucket.requests < 1 || bucket.bytes <= 0) {
        return Answer::too_fast;
    }
    bucket.requests -= 1;
    bucket.bytes -= double(bytes);
    return Answer::yes;
}

}  // namespace gt
