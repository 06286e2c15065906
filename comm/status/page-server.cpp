// comm/status/page-server.cpp — see page.h.
#include "comm/status/page.h"
#include "ggml-train/base/base.h"

#include <httplib.h>
#include <thread>

namespace gt {

constexpr int kThreads = 4;

std::string page_with(const std::string & json) {
    static const std::string place = "const inside = null;";
    std::string              page  = kStatusPage;
    const size_t             at    = page.find(place);
    GT_CHECK(at != std::string::npos, "page.html has no place for data");
    std::string data;
    for (const char c : json) {
        data += c == '<' ? "\\u003c" : std::string(1, c);  // no text can end the script
    }
    return page.replace(at, place.size(), "const inside = " + data + ";");
}

bool may_look(const httplib::Request & req) {
    const std::string host = req.get_header_value("Host");
    const std::string name = host.substr(0, host.rfind(':'));
    return req.ssl || name == "127.0.0.1" || name == "localhost";
}

void serve_page(httplib::Server & server, std::function<std::string()> json) {
    server.Get("/", [](const httplib::Request & req, httplib::Response & res) {
        if (!may_look(req)) {
            res.status = 403;
            return;
        }
        res.set_header(
            "Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; "
                                       "style-src 'unsafe-inline'; connect-src 'self'"
        );
        res.set_content(kStatusPage, "text/html");
    });
    server.Get("/status.json", [json](const httplib::Request & req, httplib::Response & res) {
        if (!may_look(req)) {
            res.status = 403;
            return;
        }
        res.set_content(json(), "application/json");
    });
}

struct PageServer::Impl {
    httplib::Server server;
    int             port = 0;
    std::thread     thread;
};

PageServer::PageServer(int port, std::function<std::string()> json)
    : impl_(std::make_unique<Impl>()) {
    httplib::Server & server = impl_->server;
    server.set_payload_max_length(0);
    server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    serve_page(server, std::move(json));
    impl_->port = port == 0 ? server.bind_to_any_port("127.0.0.1")
                            : (server.bind_to_port("127.0.0.1", port) ? port : -1);
    if (impl_->port <= 0) {
        throw Error(format("--status %d: the port is in use; choose another, or 0 for any", port));
    }
    impl_->thread = std::thread([this] { impl_->server.listen_after_bind(); });
    server.wait_until_ready();
}

PageServer::~PageServer() {
    impl_->server.stop();
    impl_->thread.join();
}

int PageServer::port() const {
    return impl_->port;
}

}  // namespace gt
