// comm/hub/hub.cpp — starts and stops the hub's threads: TLS server, status page, hooks, housekeeping.
//
// Read next: hub-requests.cpp (answers), hub-disk.cpp (storage).
#include "comm/hub/hub.h"

#include "comm/hub/hub-handshake.h"
#include "comm/hub/hub-requests.h"
#include "comm/hub/hub-threads.h"

#include <deque>
#include <httplib.h>
#include <netinet/tcp.h>
#include <thread>

namespace gt {

static constexpr auto   kHandshake     = std::chrono::milliseconds(5'000);
static constexpr auto   kTick          = std::chrono::milliseconds(20);
static constexpr auto   kHousekeeping  = std::chrono::milliseconds(1'000);
static constexpr time_t kIdle_s        = 60;  // then a connection is closed
static constexpr time_t kReadWrite_s   = 30;
static constexpr size_t kStatusThreads = 32;

// HubThreads as httplib wants it.
class ThreadQueue : public httplib::TaskQueue {
public:
    explicit ThreadQueue(size_t max_threads) : threads_(max_threads) {}

    bool enqueue(std::function<void()> job) override { return threads_.enqueue(std::move(job)); }
    void shutdown() override { threads_.shutdown(); }

private:
    HubThreads threads_;
};

static std::string folder_for_log(const std::string & path) {
    const std::string folder = path + "/=hub";
    std::error_code   failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
        throw Error(path + ": can't be created; check the folder and its permissions");
    }
    return folder;
}

static httplib::SSLServer::PemMemory pem_of(const RunKeys & keys) {
    return {keys.certificate.data(), keys.certificate.size(), keys.key.data(), keys.key.size(),
            keys.certificate.data(), keys.certificate.size(), nullptr};
}

struct Hub::Impl {
    HubOptions         options;
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
    bool                    stopping = false;
    std::thread             server_thread, local_thread, hook_thread, housekeeping_thread;

    explicit Impl(const HubOptions & o)
        : options(o), log(folder_for_log(o.path), o.quiet),
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
          server(pem_of(options.keys)), guard(static_cast<SSL_CTX *>(server.tls_context()), log) {
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
        server.new_task_queue = [n_max] { return new ThreadQueue(n_max); };
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

    void listen() {
        const size_t colon = options.address.rfind(':');
        if (colon == options.address.npos) {
            throw Error("hub: address '" + options.address + "' has no port; use host:port");
        }
        std::string host = options.address.substr(0, colon);
        if (host.size() > 2 && host.front() == '[') {
            host = host.substr(1, host.size() - 2);
        }
        const int wanted = std::atoi(options.address.c_str() + colon + 1);
        port             = wanted == 0 ? server.bind_to_any_port(host)
                                       : (server.bind_to_port(host, wanted) ? wanted : -1);
        if (port <= 0) {
            throw Error(
                "hub: can't listen on " + options.address +
                "; the port may be in use, or the address may not be this machine's"
            );
        }
        if (options.status_port >= 0) {
            local.set_payload_max_length(0);
            local.new_task_queue = [] { return new ThreadQueue(kStatusThreads); };
            local_port =
                options.status_port == 0
                    ? local.bind_to_any_port("127.0.0.1")
                    : (local.bind_to_port("127.0.0.1", options.status_port) ? options.status_port
                                                                            : -1);
            if (local_port <= 0) {
                throw Error(
                    format("hub: the status port %d is in use; choose another", options.status_port)
                );
            }
            local_thread = std::thread([this] { local.listen_after_bind(); });
            local.wait_until_ready();
        }
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
        std::unique_lock<std::mutex> lock(hook_mutex);
        while (!stopping) {
            hook_wakeup.wait_for(lock, kHousekeeping, [&] { return stopping; });
            lock.unlock();
            guard.end_slow(kHandshake);
            uploads.drop_old();
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
