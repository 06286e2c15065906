// comm/hub/hub-handshake.h — closes connections that do not finish the TLS handshake in time.
//
// httplib's timeouts do not cover SSL_accept as a whole: a peer that sends one byte now and then
// would keep a thread. Unknown peers get at most a quarter of the connections, and one address a
// sixteenth. Connections that fail the handshake are logged with their address.
#pragma once

#include "comm/hub/hub-log.h"

#include <chrono>
#include <map>
#include <openssl/ssl.h>

namespace gt {

class HandshakeGuard {
public:
    HandshakeGuard(SSL_CTX * context, HubLog & log, int max_connections);

    // Closes connections whose handshake takes longer than `limit`.
    void end_slow(std::chrono::milliseconds limit);

private:
    struct Pending {
        std::string                           from;
        std::chrono::steady_clock::time_point since;
        bool                                  ended = false;  // its socket is shut down
    };
    void        add(const SSL * ssl);
    static void on_info(const SSL * ssl, int where, int code);
    static void
    on_free(void * parent, void * ptr, CRYPTO_EX_DATA * data, int index, long argl, void * argp);

    HubLog &                       log_;
    size_t                         max_pending_, max_per_address_;
    std::mutex                     mutex_;
    std::map<const SSL *, Pending> pending_;
    std::map<std::string, uint64_t>
        last_noted_;  // by address, so that a port scan can't fill the log
};

}  // namespace gt
