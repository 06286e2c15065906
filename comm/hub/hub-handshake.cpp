// comm/hub/hub-handshake.cpp — see hub-handshake.h.
#include "comm/hub/hub-handshake.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace gt {

static constexpr size_t   kMaxNoted   = 1000;  // addresses
static constexpr uint64_t kNoteEachMs = 1000;  // one log line per address in this time

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

// Slots for user data: the guard of a context, and the guard of a connection.
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
