// comm/hub.cpp — the life of a hub: listen behind TLS, run the hooks, keep house.
//
// Read next: hub-requests.cpp (what it answers), hub-disk.cpp (what it keeps).
#include "comm/hub.h"

#include "comm/hub-requests.h"
#include "comm/hub-threads.h"

#include <deque>
#include <netinet/tcp.h>
#include <thread>

namespace gt {

static constexpr auto kHandshake = std::chrono::milliseconds(5'000);

static std::string folder_for_log(const std::string & path) {
    const std::string folder = path + "/=hub";
    std::error_code   failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
        throw Error(path + ": can't be created; check the folder and its rights");
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
    std::thread             server_thread, local_thread, hook_thread, house_thread;

    explicit Impl(const HubOptions & o)
        : options(o), log(folder_for_log(o.path), o.quiet),
          disk(o.path, {o.max_value_bytes, o.max_total_bytes, o.max_keys}),
          status(folder_for_log(o.path), log),
          requests(
              options, log, disk, status, [this](const std::string & key) { tell_hooks(key); }
          ),
          server(pem_of(options.keys)), guard(static_cast<SSL_CTX *>(server.tls_context()), log) {
        GT_CHECK(server.is_valid(), "the run's certificate is not usable");
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
        SSL_CTX_set_num_tickets(context, 0);  // connections are kept; no second way in
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    }

    void set_up_server() {
        const size_t n_max    = size_t(options.max_connections);
        server.new_task_queue = [n_max] { return new HubThreads(n_max); };
        server.set_keep_alive_max_count(1'000'000'000);
        server.set_keep_alive_timeout(60);
        server.set_read_timeout(30);
        server.set_write_timeout(30);
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

    void tell_hooks(const std::string & key) {
        if (options.hooks) {
            std::lock_guard<std::mutex> lock(hook_mutex);
            new_keys.push_back(key);
            hook_wakeup.notify_all();
        }
    }

    void listen() {
        const size_t colon = options.address.rfind(':');
        if (colon == options.address.npos) {
            throw Error("hub: address '" + options.address + "' has no port; write host:port");
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
                "; is another hub running there, or is the address not one of this machine's?"
            );
        }
        if (options.status_port >= 0) {
            local.set_payload_max_length(0);
            local.new_task_queue = [] { return new HubThreads(32); };
            local_port =
                options.status_port == 0
                    ? local.bind_to_any_port("127.0.0.1")
                    : (local.bind_to_port("127.0.0.1", options.status_port) ? options.status_port
                                                                            : -1);
            if (local_port <= 0) {
                throw Error(
                    format("hub: the status port %d is taken; choose another", options.status_port)
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
        house_thread = std::thread([this] { keep_house(); });
        log.note(format(
            "listening on port %d, boot %s, %llu keys, %llu bytes", port, requests.boot().c_str(),
            (unsigned long long) disk.n_keys(), (unsigned long long) disk.total_bytes()
        ));
    }

    // One call of the hooks; what fails in it is noted and does not stop the next.
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
            hook_wakeup.wait_for(lock, std::chrono::milliseconds(20), [&] {
                return stopping || !new_keys.empty();
            });
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

    void keep_house() {
        std::unique_lock<std::mutex> lock(hook_mutex);
        while (!stopping) {
            hook_wakeup.wait_for(lock, std::chrono::milliseconds(1000), [&] { return stopping; });
            lock.unlock();
            guard.end_slow(kHandshake);
            disk.drop_old_uploads();
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
        for (std::thread * thread : {&server_thread, &local_thread, &hook_thread, &house_thread}) {
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
