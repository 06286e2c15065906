// comm/hub/hub.cpp — starts and stops the hub's threads: TLS server, status page, hooks, housekeeping.
//
// Read next: hub-requests.cpp (answers), hub-disk.cpp (storage).
#include "comm/hub/hub.h"

#include "comm/hub/hub-handshake.h"
#include "comm/hub/hub-requests.h"
#include "comm/hub/hub-threads.h"
#include "comm/wire/keys.h"
#include "ggml-train/base/file.h"
#include "ggml-train/base/text.h"

#include <deque>
#include <httplib.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <thread>

namespace gt {

static constexpr auto   kHandshake     = std::chrono::milliseconds(5'000);
static constexpr auto   kTick          = std::chrono::milliseconds(20);
static constexpr auto   kHousekeeping  = std::chrono::milliseconds(1'000);
static constexpr auto   kLonely        = std::chrono::seconds(60);
static constexpr time_t kIdle_s        = 60;  // then a connection is closed
static constexpr time_t kReadWrite_s   = 30;
static constexpr size_t kStatusThreads = 32;
static constexpr int    kOtherFiles    = 64;  // besides connections: values, log, status page

// Only its owner can read a new folder: settings and metrics are not sealed.
static std::string folder_for_log(const std::string & path) {
    const std::string log    = path + "/=hub";
    const bool        is_new = !std::filesystem::exists(path);
    make_folder(log);
    if (is_new) {
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    std::filesystem::permissions(log, std::filesystem::perms::owner_all);
    return log;
}

// Raises the limit of open files as far as the system allows, and allows as many connections as fit.
static HubOptions with_fitting_limits(HubOptions options) {
    const rlim_t wanted = rlim_t(options.max_connections) + kOtherFiles;
    rlimit       limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = std::min(wanted, limit.rlim_max);
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    const int n_files       = int(std::min(limit.rlim_cur, wanted));
    options.max_connections = std::max(n_files - kOtherFiles, 1);
    return options;
}

static httplib::SSLServer::PemMemory pem_of(const RunKeys & keys) {
    return {keys.certificate.data(), keys.certificate.size(), keys.key.data(), keys.key.size(),
            keys.certificate.data(), keys.certificate.size(), nullptr};
}

struct Hub::Impl {
    HubOptions         options;
    FileLock           lock;  // before anything in the folder is read
    HubLog             log;
    HubDisk            disk;
    HubUploads         uploads;
    HubStatus          status;
    HubRequests        requests;
    httplib::SSLServer server;
    httplib::Server    local;  // the status page on loopback
    HandshakeGuard     guard;
    int                port = 0, local_port = -1;

    std::mutex              hook_mutex;
    std::condition_variable hook_wakeup;
    std::deque<std::string> new_keys;
    bool                    stopping = false, is_nearly_full = false;
    std::thread             server_thread, local_thread, hook_thread, housekeeping_thread;

    explicit Impl(const HubOptions & o)
        : options(with_fitting_limits(o)),
          lock(
              folder_for_log(o.path) + "/lock",
              o.path + ": another hub uses this folder; stop it, or choose another folder "
                       "(hub --path, train-gpt --hub-path)"
          ),
          log(folder_for_log(o.path), o.quiet),
          disk(o.path, {o.max_value_bytes, o.max_total_bytes, o.max_keys}), uploads(disk),
          status(folder_for_log(o.path), log),
          requests(
              options,
              log,
              disk,
              uploads,
              status,
              [this](const std::string & key) { notify_hooks(key); }
          ),
          server(pem_of(options.keys)),
          guard(static_cast<SSL_CTX *>(server.tls_context()), log, options.max_connections) {
        GT_CHECK(server.is_valid(), "invalid certificate");
        set_up_tls();
        set_up_server();
        requests.set_up(server);
        requests.set_up_status(local);
        listen();
    }

    void set_up_tls() {
        auto * context = static_cast<SSL_CTX *>(server.tls_context());
        SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
        SSL_CTX_set_num_tickets(context, 0);  // connections are kept alive: no session resumption
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    }

    void set_up_server() {
        const size_t n_max    = size_t(options.max_connections);
        server.new_task_queue = [this, n_max] { return new HubThreads(n_max, log); };
        server.set_keep_alive_max_count(1'000'000'000);
        server.set_keep_alive_timeout(kIdle_s);
        server.set_read_timeout(kReadWrite_s);
        server.set_write_timeout(kReadWrite_s);
        server.set_tcp_nodelay(true);
        const std::string congestion = options.congestion;
        server.set_socket_options([congestion](socket_t socket) {
            const int on = 1, seconds = 5, low = 256 * 1024;
            ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
            ::setsockopt(socket, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
            ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low);
            if (!congestion.empty()) {  // accepted sockets inherit it
                ::setsockopt(
                    socket, IPPROTO_TCP, TCP_CONGESTION, congestion.c_str(),
                    socklen_t(congestion.size())
                );
            }
        });
    }

    void notify_hooks(const std::string & key) {
        if (options.hooks) {
            std::lock_guard<std::mutex> lock(hook_mutex);
            new_keys.push_back(key);
            hook_wakeup.notify_all();
        }
    }

    // The port, or -1. wanted 0: any.
    static int bind(httplib::Server & at, const std::string & host, int wanted) {
        return wanted == 0 ? at.bind_to_any_port(host)
                           : (at.bind_to_port(host, wanted) ? wanted : -1);
    }

    void listen() {
        const size_t colon = options.address.rfind(':');
        if (colon == options.address.npos) {
            throw Error("the hub's address '" + options.address + "' has no port; use host:port");
        }
        std::string host = options.address.substr(0, colon);
        if (host.size() > 2 && host.front() == '[') {
            host = host.substr(1, host.size() - 2);
        }
        const int wanted = std::atoi(options.address.c_str() + colon + 1);
        port             = bind(server, host, wanted);
        if (port <= 0 && host == "::") {
            port = bind(server, "0.0.0.0", wanted);  // a system without IPv6
        }
        if (port <= 0) {
            throw Error(
                "the hub can't listen on " + options.address +
                "; the port may be in use, or the address may not be this machine's"
            );
        }
        if (options.status_port >= 0) {
            local.set_payload_max_length(0);
            local.new_task_queue = [this] { return new HubThreads(kStatusThreads, log); };
            local_port           = bind(local, "127.0.0.1", options.status_port);
            if (local_port <= 0) {
                throw Error(
                    format("--status %d: the port is in use; choose another", options.status_port)
                );
            }
            local_thread = std::thread([this] { local.listen_after_bind(); });
            local.wait_until_ready();
        }
        name_other_runs();
        if (options.hooks) {
            options.hooks->start(disk);
        }
        server_thread = std::thread([this] { server.listen_after_bind(); });
        server.wait_until_ready();
        if (options.hooks) {
            hook_thread = std::thread([this] { run_hooks(); });
        }
        housekeeping_thread = std::thread([this] { do_housekeeping(); });
        log.note(format(
            "listening on port %d, boot %s, %llu keys, %llu bytes", port, requests.boot().c_str(),
            (unsigned long long) disk.n_keys(), (unsigned long long) disk.total_bytes()
        ));
    }

    // Space that old runs use is not freed by itself.
    void name_other_runs() {
        for (const auto & [root, bytes] : disk.bytes_of_runs()) {
            if (!root.empty() && root != RunPaths(options.keys.run).root) {
                log.note(
                    options.path + "/" + root + " has " + bytes_text(bytes) +
                    " of another run; remove it if that run is over"
                );
            }
        }
    }

    // Calls the hooks; exceptions are logged.
    template <typename Call>
    void guarded(const Call & call) {
        try {
            call();
        } catch (const std::exception & failed) {
            log.fault(std::string("sequencer: ") + failed.what());
        }
    }

    void run_hooks() {
        std::unique_lock<std::mutex> lock(hook_mutex);
        while (!stopping) {
            hook_wakeup.wait_for(lock, kTick, [&] { return stopping || !new_keys.empty(); });
            std::deque<std::string> keys;
            keys.swap(new_keys);
            lock.unlock();
            for (const std::string & key : keys) {
                guarded([&] { options.hooks->on_put(key); });
            }
            guarded([&] { options.hooks->tick(std::chrono::steady_clock::now()); });
            lock.lock();
        }
    }

    void do_housekeeping() {
        const auto                   begin   = std::chrono::steady_clock::now();
        bool                         is_told = false;
        std::unique_lock<std::mutex> lock(hook_mutex);
        while (!stopping) {
            hook_wakeup.wait_for(lock, kHousekeeping, [&] { return stopping; });
            lock.unlock();
            guard.end_slow(kHandshake);
            uploads.drop_old();
            if (!is_told && !requests.was_reached() &&
                std::chrono::steady_clock::now() - begin > kLonely) {
                is_told = true;
                log.note(format(
                    "no host has reached this hub yet; check that port %d is open, and that the "
                    "router forwards it to this machine",
                    port
                ));
            }
            const bool was_full = std::exchange(is_nearly_full, disk.is_nearly_full());
            if (is_nearly_full && !was_full) {
                log.fault(
                    "four fifths of the space are used, " + bytes_text(disk.total_bytes()) +
                    ": old rounds are removed early, so who joins may have to wait for the next "
                    "shared checkpoint; free some space, or use a larger --disk"
                );
            }
            lock.lock();
        }
    }

    ~Impl() {
        {
            std::lock_guard<std::mutex> lock(hook_mutex);
            stopping = true;
            hook_wakeup.notify_all();
        }
        disk.stop_waiting();
        server.stop();
        local.stop();
        for (std::thread * thread :
             {&server_thread, &local_thread, &hook_thread, &housekeeping_thread}) {
            if (thread->joinable()) {
                thread->join();
            }
        }
        log.note("stopped");
    }
};

Hub::Hub(const HubOptions & options) : impl_(std::make_unique<Impl>(options)) {}

Hub::~Hub() = default;

int Hub::port() const {
    return impl_->port;
}

int Hub::status_port() const {
    return impl_->local_port;
}

HubTraffic Hub::traffic() const {
    return impl_->status.traffic();
}

bool Hub::add_metrics(const std::string & host, const std::string & line) {
    return impl_->status.add_metrics(host, line);
}

void Hub::fault(const std::string & text) {
    impl_->log.fault(text);
}

Store & Hub::store() {
    return impl_->disk;
}

}  // namespace gt
