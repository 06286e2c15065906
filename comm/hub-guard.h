// comm/hub-guard.h — who may use the hub, and how much: handshakes, hosts, log.
//
// Internal to hub.cpp. Everything here is safe for several threads and bounded in memory.
#pragma once

#include "ggml-train/base.h"

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <openssl/ssl.h>
#include <string>

namespace gt {

// One line per event, with its time; begins anew when a file is full, the one before is kept.
class HubLog {
public:
    HubLog(const std::string & folder, bool quiet);
    ~HubLog();
    HubLog(const HubLog &)             = delete;
    HubLog & operator=(const HubLog &) = delete;

    struct Fault {
        uint64_t    time_ms;
        std::string text;
    };

    void               note(const std::string & text);
    void               fault(const std::string & text);  // also shown on the status page
    std::vector<Fault> faults() const;

private:
    mutable std::mutex mutex_;
    std::string        path_;
    bool               quiet_;
    FILE *             file_  = nullptr;
    size_t             bytes_ = 0;
    std::deque<Fault>  faults_;
};

uint64_t wall_ms();

// Ends connections that do not finish the TLS handshake soon, and names them in the log: whoever
// scans the port holds no thread for long.
class HandshakeGuard {
public:
    HandshakeGuard(SSL_CTX * context, HubLog & log);

    void end_slow(std::chrono::milliseconds limit);

private:
    struct Pending {
        std::string                           from;
        std::chrono::steady_clock::time_point since;
    };
    static void on_info(const SSL * ssl, int where, int code);
    static void
    on_free(void * parent, void * ptr, CRYPTO_EX_DATA * data, int index, long argl, void * argp);

    HubLog &                        log_;
    std::mutex                      mutex_;
    std::map<const SSL *, Pending>  pending_;
    std::map<std::string, uint64_t> last_noted_;  // per address: a scan does not fill the log
};

// Two token buckets per host: requests and bytes. The burst is two seconds' worth.
class HostLimits {
public:
    HostLimits(uint64_t bytes_s, uint64_t requests_s, int max_hosts);

    enum class Answer { yes, too_fast, too_many_hosts };
    Answer allow(const std::string & host, uint64_t bytes);

private:
    struct Bucket {
        double                                bytes, requests;
        std::chrono::steady_clock::time_point last;
    };
    std::mutex                    mutex_;
    std::map<std::string, Bucket> hosts_;
    double                        bytes_s_, requests_s_;
    size_t                        max_hosts_;
};

}  // namespace gt
