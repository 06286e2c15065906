// comm/status/page.h — the status page of a run (page.html): one file without external resources.
//
// It shows JSON that it polls, or that it has inside. Every field may be missing:
//
//   run, model, state ("waiting", "running", "paused", "finished", "stopped"), text (what it waits for),
//   step, steps, loss, val_loss, accuracy, seconds, seconds_left, unit, units_s, up_day, down_day (bytes),
//   batch (samples of a whole round on one host), validation [[step, loss], ...],
//   hosts [{name, us, state ("training", "late", "gone", "left"), age, samples, loss, units_s, up, down,
//           curve [[step, loss], ...]}, ...],
//   samples [{step, text}, ...], faults [{age, text}, ...]    ages in seconds
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace httplib {
class Server;
struct Request;
}  // namespace httplib

namespace gt {

extern const char * const kStatusPage;

// The page with its data inside: a file that needs no server.
std::string page_with(const std::string & json);

// A request over TLS, or one that names this machine: not from a foreign web page whose host name resolves
// to 127.0.0.1 (DNS rebinding).
bool may_look(const httplib::Request & request);

// Serves the page at / and `json` at /status.json.
void serve_page(httplib::Server & server, std::function<std::string()> json);

// The page on 127.0.0.1, from a thread of its own.
class PageServer {
public:
    // port 0: any. Throws an Error if it is in use.
    PageServer(int port, std::function<std::string()> json);
    ~PageServer();
    PageServer(const PageServer &)             = delete;
    PageServer & operator=(const PageServer &) = delete;

    int port() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gt
