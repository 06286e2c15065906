// comm/hub/hub-handshake.cpp — see hub-handshake.h.
#include "comm/hub/hub-handshake.h"

#include <algorithm>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace gt {

static constexpr size_t   kMaxNoted        = 1000;  // addresses
static constexpr uint64_t kNoteEachMs      = 1000;  // one log line per address in this time
static constexpr size_t   kLeastPerAddress = 16;    // hosts of one home connect together

// The address of the peer; of an IPv6 address its network, since one home has all of it.
static std::string peer_of(const SSL * ssl) {
    sockaddr_storage address{};
    socklen_t        size                   = sizeof address;
    char             text[INET6_ADDRSTRLEN] = "?";
    if (::getpeername(SSL_get_fd(ssl), reinterpret_cast<sockaddr *>(&address), &size) != 0) {
        return text;
    }
    if (address.ss_family == AF_INET) {
        const auto * v4 = reinterpret_cast<const sockaddr_in *>(&address);
        ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
        return text;
    }
    in6_addr v6 = reinterpret_cast<const sockaddr_in6 *>(&address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
        ::inet_ntop(AF_INET, v6.s6_addr + 12, text, sizeof text);
        return text;
    }
    std::fill_n(v6.s6_addr + 8, 8, uint8_t(0));
    ::inet_ntop(AF_INET6, &v6, text, sizeof text);
    return text + std::string("/64");
}

// Slots for user data: the guard of a context, and the guard of a connection.
static int guard_slot() {
    static const int slot = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return slot;
}

static int session_slot(CRYPTO_EX_free * on_free) {
    static const int slot = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, on_free);
    return slot;
}

HandshakeGuard::HandshakeGuard(SSL_CTX * context, HubLog & log, int max_connections)
    : log_(log), max_pending_(size_t(max_connections) / 4),
      max_per_address_(std::max(size_t(max_connections) / 16, kLeastPerAddress)) {
    SSL_CTX_set_ex_data(context, guard_slot(), this);
    session_slot(&HandshakeGuard::on_free);
    SSL_CTX_set_info_callback(context, &HandshakeGuard::on_info);
}

void HandshakeGuard::add(const SSL * ssl) {
    const std::string           from = peer_of(ssl);
    std::lock_guard<std::mutex> lock(mutex_);
    pending_.try_emplace(ssl, Pending{from, std::chrono::steady_clock::now()});
    // one address has too many: this one ends; all together have: the oldest ends
    size_t n_all = 0, n_same = 0;
    auto   oldest = pending_.find(ssl);
    for (auto it = pending_.begin(); it != pending_.end(); ++it) {
        const Pending & other = it->second;
        n_all += other.ended ? 0 : 1;
        n_same += !other.ended && other.from == from ? 1 : 0;
        oldest = !other.ended && other.since < oldest->second.since ? it : oldest;
    }
    const auto last = n_same > max_per_address_ ? pending_.find(ssl) : oldest;
    if (n_same > max_per_address_ || n_all > max_pending_) {
        last->second.ended = true;
        ::shutdown(SSL_get_fd(last->first), SHUT_RDWR);
    }
}

void HandshakeGuard::on_info(const SSL * ssl, int where, int) {
    auto * guard =
        static_cast<HandshakeGuard *>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), guard_slot()));
    if (where & SSL_CB_HANDSHAKE_START) {
        guard->add(ssl);
        SSL_set_ex_data(const_cast<SSL *>(ssl), session_slot(nullptr), guard);
    } else if (where & SSL_CB_HANDSHAKE_DONE) {
        std::lock_guard<std::mutex> lock(guard->mutex_);
        guard->pending_.erase(ssl);
    }
}

// A connection is freed. If its handshake is still pending, the peer does not have the key.
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
        if (guard->last_noted_.size() > kMaxNoted) {
            guard->last_noted_.clear();
        }
        uint64_t & last = guard->last_noted_[from];
        if (now - last < kNoteEachMs) {
            return;
        }
        last = now;
    }
    guard->log_.fault("refused " + from + ": no handshake with this run's key");
}

void HandshakeGuard::end_slow(std::chrono::milliseconds limit) {
    const auto                  now = std::chrono::steady_clock::now();
    std::lock_guard<std::mutex> lock(mutex_);  // keeps on_free out: the socket is still open
    for (const auto & [ssl, pending] : pending_) {
        if (now - pending.since > limit) {
            ::shutdown(SSL_get_fd(ssl), SHUT_RDWR);
        }
    }
}

}  // namespace gt
